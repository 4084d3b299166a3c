// A libcuda.so.1 of the tests' own: of a machine with one GPU, or compiled with FINDS_NO_GPU of one
// that has the driver and nothing else, with DOES_NOT_START of one whose driver is broken.

extern "C" int cuInit(unsigned /*flags*/) {
#ifdef FINDS_NO_GPU
  return 100;
#elif defined(DOES_NOT_START)
  return 999;
#else
  return 0;
#endif
}

extern "C" int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
