#ifndef PARLEY_WORKER_DATA_IMAGE_FOLDERS_H_
#define PARLEY_WORKER_DATA_IMAGE_FOLDERS_H_

#include "absl/status/statusor.h"
#include "worker/data/datasets.h"

namespace parley {

// Images in folders by their class, as torchvision's ImageFolder reads them (ImageNet, Imagewoof).
// Only names are read now; an image is read and decoded each time that it is drawn. What of a
// training image is shown follows from (seed, data epoch, sample). settings: with their defaults.
// NotFound says what is missing; InvalidArgument names a class that only one of the sets has.
absl::StatusOr<Datasets> OpenImageFolders(const ImageFolders& settings, uint64_t seed);

}  // namespace parley

#endif  // PARLEY_WORKER_DATA_IMAGE_FOLDERS_H_
