#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_ADDRESSES_CHECK_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_ADDRESSES_CHECK_H_

#include <string>

#include "client/parley/doctor/finding.h"
#include "client/parley/doctor/host_network.h"

namespace parley {

// Whether a process of the job could listen there (--listen): that it is an address, of this
// machine, that others come to by that name, and that the port is free.
Findings CheckListen(const std::string& listen, HostNetwork& network);

// Whether other machines are to come to a process that listens there. False for what is no address.
bool IsForOthers(const std::string& listen);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_ADDRESSES_CHECK_H_
