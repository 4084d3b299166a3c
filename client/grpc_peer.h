#ifndef PARLEY_CLIENT_GRPC_PEER_H_
#define PARLEY_CLIENT_GRPC_PEER_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/open_calls.h"
#include "common/clock/steady_now.h"
#include "common/replies.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status.h"
#include "common/rpc/tensor_wire.h"
#include "common/security/credentials.h"
#include "common/tensor_slice.h"

namespace parley {

// For CallBytes: reads a message without tensors from the bytes of the answer.
template <class Reply>
Done<grpc::ByteBuffer> ParsingBytes(Done<Reply> done) {
  return [done = std::move(done)](const absl::StatusOr<grpc::ByteBuffer>& bytes) {
    Reply reply;
    std::vector<TensorSlice> none;
    absl::Status status = bytes.status();
    if (status.ok()) status = DecodeTensors(*bytes, kNoSlices, reply, none);
    if (!status.ok()) return done(status);
    done(std::move(reply));
  };
}

// The process at one address (host:port) that serves `Service`, a class that gRPC generated: the
// channels to it, and how every call of it is made. Owned by a client; connects lazily;
// thread-safe.
template <class Service>
class GrpcPeer {
 public:
  using Stub = typename Service::StubInterface::async_interface;
  using Bytes = grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;

  GrpcPeer(std::string address, SharedCredentials credentials, std::shared_ptr<OpenCalls> calls)
      : address_(std::move(address)),
        credentials_(std::move(credentials)),
        calls_(std::move(calls)),
        channels_{{MakeChannel(address_, credentials_), MakeChannel(address_, credentials_)}},
        stub_(Service::NewStub(channels_[0])),
        bytes_{{Bytes(channels_[0]), Bytes(channels_[1])}} {}

  // Makes one attempt of the unary call `method`. gRPC has read the request when this returns;
  // `done` runs on a thread of gRPC, or here if this process is ending. Errors name the address.
  template <class Request, class Reply>
  void Call(void (Stub::*method)(grpc::ClientContext*, const Request*, Reply*,
                                 std::function<void(grpc::Status)>),
            const Request& request, absl::Time deadline, Done<Reply> done) const {
    Begin<Reply>(
        deadline, std::move(done), nullptr,
        [&](grpc::ClientContext* context, Reply* reply, std::function<void(grpc::Status)> on_end) {
          (stub_->async()->*method)(context, &request, reply, std::move(on_end));
        });
  }

  // The same for a method of this name ("/parley.ParameterShard/Push"), with the bytes of request
  // and reply. What of the request is borrowed gRPC may read until it lets go of it, which can be
  // after the call's end. peer: set before `done` runs to the address that has answered, as gRPC
  // writes it ("ipv4:10.0.0.1:7000").
  void CallBytes(const std::string& method, const grpc::ByteBuffer& request, absl::Time deadline,
                 Done<grpc::ByteBuffer> done, std::shared_ptr<std::string> peer = nullptr) const {
    Begin<grpc::ByteBuffer>(deadline, std::move(done), std::move(peer),
                            [&](grpc::ClientContext* context, grpc::ByteBuffer* reply,
                                std::function<void(grpc::Status)> on_end) {
                              bytes_[next_++ % bytes_.size()].UnaryCall(
                                  context, method, grpc::StubOptions(), &request, reply,
                                  std::move(on_end));
                            });
  }

 private:
  // What a call needs until it has ended; the peer may have gone by then.
  template <class Reply>
  struct OpenCall {
    static void End(std::unique_ptr<OpenCall> call, const grpc::Status& status) {
      if (call->peer != nullptr) *call->peer = call->context.peer();
      if (status.ok()) {
        call->done(std::move(call->reply));
      } else {
        call->done(FromGrpc(status, call->address));
      }
      // The context goes before the call counts as gone: it holds the channel, and a channel whose
      // last holder is a thread of its own gRPC callbacks ends the process (seen with gRPC 1.51.1).
      const std::shared_ptr<OpenCalls> calls = call->calls;
      calls->Ended(&call->context);
      call.reset();
      calls->Gone();
    }

    grpc::ClientContext context;
    Reply reply;
    Done<Reply> done;
    std::string address;
    std::shared_ptr<std::string> peer;  // nullptr: nobody asks
    std::shared_ptr<OpenCalls> calls;
  };

  // Makes the call that `start(context, reply, on_end)` starts.
  template <class Reply, class Start>
  void Begin(absl::Time deadline, Done<Reply> done, std::shared_ptr<std::string> peer,
             const Start& start) const {
    for (size_t i = 0; i < channels_.size(); ++i) reconnect_[i].BeforeCall(*channels_[i]);
    auto call = std::make_unique<OpenCall<Reply>>();
    call->context.set_deadline(ToGrpcDeadline(std::min(deadline, SteadyNow() + absl::Hours(1))));
    SayToken(credentials_, call->context);
    if (!calls_->Add(&call->context)) {
      return done(absl::CancelledError(absl::StrCat(address_, ": this process is ending")));
    }
    call->done = std::move(done);
    call->address = address_;
    call->peer = std::move(peer);
    call->calls = calls_;
    OpenCall<Reply>* raw = call.release();  // until its end it belongs to gRPC
    start(&raw->context, &raw->reply, [raw](const grpc::Status& status) {
      OpenCall<Reply>::End(std::unique_ptr<OpenCall<Reply>>(raw), status);
    });
  }

  const std::string address_;
  const SharedCredentials credentials_;
  const std::shared_ptr<OpenCalls> calls_;
  // Two for large messages, by turns: one connection is one thread's work on either side.
  const std::array<std::shared_ptr<grpc::Channel>, 2> channels_;
  mutable std::array<ReconnectAfterClockIsSet, 2> reconnect_;
  const std::unique_ptr<typename Service::StubInterface> stub_;
  mutable std::array<Bytes, 2> bytes_;  // thread-safe
  mutable std::atomic<size_t> next_ = 0;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_GRPC_PEER_H_
