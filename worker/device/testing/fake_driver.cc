// A libcuda.so.1 of the tests' own, whose machine has as many GPUs as it is told when it is
// compiled; -1: it finds none, as the real one says it.
#ifndef GPUS
#error "GPUS is not defined"
#endif

extern "C" int cuInit(unsigned) { return GPUS < 0 ? 100 : 0; }
extern "C" int cuDeviceGetCount(int* count) {
  *count = GPUS;
  return 0;
}
