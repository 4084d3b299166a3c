#ifndef PARLEY_CLIENT_REFERENCE_AGENT_OPTIONS_FOR_TEST_H_
#define PARLEY_CLIENT_REFERENCE_AGENT_OPTIONS_FOR_TEST_H_

#include "client/reference/remote_agent.h"
#include "common/security/credentials_for_test.h"

namespace parley {

// How values go.
enum class Way { kShared, kDirect, kDirectTls, kGrpc };

inline RemoteAgent::Options OptionsFor(Way way) {
  RemoteAgent::Options options;
  options.job = "test";
  options.listen = "127.0.0.1:0";
  options.shares_memory = way == Way::kShared;
  options.direct = way != Way::kGrpc;
  if (way == Way::kDirectTls) options.credentials = OwnTlsCredentials();
  return options;
}

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_AGENT_OPTIONS_FOR_TEST_H_
