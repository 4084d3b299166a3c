#ifndef PARLEY_COMMON_CONNECT_FOR_TEST_H_
#define PARLEY_COMMON_CONNECT_FOR_TEST_H_

#include <string>

#include "common/file_descriptor.h"

namespace parley {

// A bare TCP connection to that port ("host:port") of this machine, as a stranger makes one. Where
// it cannot be made, the test fails.
FileDescriptor ConnectForTest(const std::string& address);

}  // namespace parley

#endif  // PARLEY_COMMON_CONNECT_FOR_TEST_H_
