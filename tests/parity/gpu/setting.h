#ifndef PARLEY_TESTS_PARITY_GPU_SETTING_H_
#define PARLEY_TESTS_PARITY_GPU_SETTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "worker/data/datasets.h"

namespace parley {

// What gpu_benchmark trains.
struct Setting {
  std::string model;           // of the job file
  std::vector<int64_t> image;  // empty: text
  int64_t classes = 10;
  uint64_t batch = 0;
};

// "resnet50": ResNet-50, 25 million parameters, on images of ImageNet's size; "transformer": the
// course's, of 77.9 million; any other word: a network small enough to try the program out.
Setting SettingOf(const std::string& model);

// Samples of that shape that mean nothing, the same each time.
Datasets RandomData(const Setting& setting);

}  // namespace parley

#endif  // PARLEY_TESTS_PARITY_GPU_SETTING_H_
