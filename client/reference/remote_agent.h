#ifndef PARLEY_CLIENT_REFERENCE_REMOTE_AGENT_H_
#define PARLEY_CLIENT_REFERENCE_REMOTE_AGENT_H_

#include <grpcpp/impl/codegen/service_type.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/reference/reference_host.h"
#include "client/reference/reference_peers.h"
#include "client/reference/reference_service.h"
#include "client/reference/remote_reference.h"
#include "client/reference/remote_value.h"
#include "common/direct/direct_server.h"
#include "common/replies.h"
#include "common/rpc/refusals.h"
#include "common/rpc/server.h"
#include "common/security/credentials.h"
#include "common/shared_memory/local_door.h"
#include "common/worker_threads.h"

namespace parley {

// What a function is called with.
struct RemoteCall {
  std::string function;
  // Held by this process until they are dropped. A value that came with the call is fetched at
  // once.
  std::vector<RemoteReference> arguments;
  ReferenceScope scope;  // of what it returns
};

// A function that other processes may call. It runs on a thread of the agent, and may wait (Fetch).
// Its error, or what it throws, stands in place of the value.
using RemoteFunction = std::function<absl::StatusOr<RemoteValue>(const RemoteCall& call)>;

// A process's part in remote references: others call its functions and fetch its values, and it
// calls theirs (as PyTorch's rpc.remote, to_here and RRef arguments do, between C++ processes that
// may crash). docs/remote_references.md says what is promised.
//
//   auto agent = RemoteAgent::Start({.job = "demo", .listen = "127.0.0.1:0"}, {{"double",
//   Double}});
//   absl::Status connected = (*agent)->Connect("node2:7000", deadline);
//   auto twice = (*agent)->Call("node2:7000", "double", {(*agent)->Make(value)});
//   auto result = twice->Fetch(deadline);
//
// Deadlines are of SteadyNow (common/clock/steady_now.h), which nobody sets.
//
// Thread-safe. Ended by its destructor, which no function may run: everything held of others is
// given up, functions that run are waited for.
class RemoteAgent {
 public:
  struct Options {
    std::string job;                              // others of the same job only
    std::string listen;                           // host:port; port 0 takes a free one
    std::string advertise;                        // host:port for others; empty: as it listens
    size_t threads = 2;                           // for functions
    absl::Duration lease = absl::Seconds(10);     // after so long without a word others are lost
    absl::Duration patience = absl::Seconds(10);  // with a first connection
    // Functions that never wait, by name: they run on the thread that brings a call whose values
    // have come with it, so that nobody needs to be woken.
    std::set<std::string> at_once;
    // Whether values of processes on this machine may come through shared memory.
    bool shares_memory = true;
    // Whether values may go and come over direct connections.
    bool direct = true;
    SharedCredentials credentials;  // the job's
    // Of calls that do not come by gRPC; may be empty. It outlives the agent.
    RpcObserver observer;
    // Told why a stranger was refused (kWhyRefused); must not wait; may be empty.
    Refusals::Told refused;
    // In place of a server of its own: a service that another one has, which listens at `listen`
    // and is known as `advertise`. It outlives the agent.
    ReferenceService* service = nullptr;
  };

  // `functions`: what others may call, by name. InvalidArgument: `listen` is no host:port.
  // Unavailable: the port is in use.
  static absl::StatusOr<std::unique_ptr<RemoteAgent>> Start(
      const Options& options, std::map<std::string, RemoteFunction> functions);
  ~RemoteAgent();
  RemoteAgent(const RemoteAgent&) = delete;
  RemoteAgent& operator=(const RemoteAgent&) = delete;

  // host:port, as others know it.
  const std::string& address() const { return address_; }

  // A value of this process, which lives as long as somebody holds it, or until its step ends.
  RemoteReference Make(RemoteValue value, const ReferenceScope& scope = {});

  // Before the first Call of an address; waits. It stays connected, however long nothing is sent,
  // until the process there has gone or was not heard of for a lease. Calls of both ways bring
  // their values along where both have connected. Unavailable: nobody answers there. NotFound: one
  // of another job does. Aborted: another process has come at that address, which the next Connect
  // reaches. DeadlineExceeded: none of these by then.
  absl::Status Connect(const std::string& address, absl::Time deadline);

  // Has the process at `address` run `function`. Does not wait: the result is a reference at once,
  // which can be passed on. Values of this process go along with the call. FailedPrecondition: not
  // connected; InvalidArgument: an argument is of nothing, or of another agent; the status of an
  // argument that can be used no more. That there is no such function stands in the place of the
  // result (NotFound), and so does what the function throws (Internal).
  // answered: as ReferenceSpace's, on any thread; must not wait.
  absl::StatusOr<RemoteReference> Call(const std::string& address, const std::string& function,
                                       const std::vector<RemoteReference>& arguments,
                                       const ReferenceScope& scope = {},
                                       ReferenceSpace::Answered answered = {});

  // Frees every value of this attempt of a step and of all before it, here, and gives up what is
  // held of such values elsewhere.
  void EndStep(const StepScope& scope);

  // For metrics and tests.
  struct Counts {
    size_t values = 0;    // that live here
    size_t held = 0;      // of other processes'
    size_t sessions = 0;  // that others have here
    size_t direct = 0;    // calls that came over direct connections, until now
  };
  Counts counts() const;

 private:
  RemoteAgent(const Options& options, std::map<std::string, RemoteFunction> functions);

  void Begin(ReferenceSpace::Run run);
  void RunNow(const ReferenceSpace::Run& run);
  absl::StatusOr<ValuePtr> RunFunction(const RemoteCall& call) const;

  const std::map<std::string, RemoteFunction> functions_;
  const std::set<std::string> at_once_;
  const std::shared_ptr<ReferencePeers> peers_;
  ReferenceService own_service_;
  WorkerThreads threads_;
  std::string address_;
  std::shared_ptr<ReferenceHost> host_;
  // Last: they call the rest.
  std::unique_ptr<LocalDoor> door_;       // null: the name was taken
  std::unique_ptr<DirectServer> direct_;  // null: not to be had
  std::unique_ptr<RpcServer> server_;     // null: it is another's
};

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_REMOTE_AGENT_H_
