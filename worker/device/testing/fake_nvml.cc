// A stand-in for libnvidia-ml.so.1 that knows the fake plugin's first GPU.
#include <cstring>

extern "C" {

struct FakeMemory {
  unsigned long long total, free, used;
};
struct FakeUtilization {
  unsigned gpu, memory;
};

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int /*result*/) { return "Not Found"; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** gpu) {
  static int the_gpu = 0;
  *gpu = &the_gpu;
  return std::strcmp(id, "fake-0") == 0 ? 0 : 6;
}
int nvmlDeviceGetMemoryInfo(void* /*gpu*/, FakeMemory* memory) {
  *memory = {8000, 5000, 3000};
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* /*gpu*/, FakeUtilization* utilization) {
  *utilization = {75, 10};
  return 0;
}
int nvmlDeviceGetPcieThroughput(void* /*gpu*/, unsigned counter, unsigned* kilobytes) {
  *kilobytes = counter == 0 ? 20 : 30;
  return 0;
}

}  // extern "C"
