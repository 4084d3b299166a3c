#include "client/parley/ask_waits.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status.h"
#include "proto/waits.grpc.pb.h"

namespace parley {
namespace {

struct Question {
  std::unique_ptr<Waits::Stub> stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<WaitsReply>> reader;
  WaitsReply reply;
  grpc::Status status;
};

}  // namespace

std::vector<absl::StatusOr<WaitsReply>> AskWaits(const std::vector<std::string>& addresses,
                                                 const SharedCredentials& credentials,
                                                 absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  grpc::CompletionQueue answers;
  std::vector<std::unique_ptr<Question>> questions;
  for (const std::string& address : addresses) {
    auto question = std::make_unique<Question>();
    question->stub = Waits::NewStub(MakeChannel(address, credentials));
    SayToken(credentials, question->context);
    question->context.set_deadline(ToGrpcDeadline(deadline));
    // A process that is only slow to take the connection has until the deadline too.
    question->context.set_wait_for_ready(true);
    question->reader = question->stub->AsyncWhatFor(&question->context, WaitsRequest(), &answers);
    question->reader->Finish(&question->reply, &question->status, question.get());
    questions.push_back(std::move(question));
  }
  // Each ends by its own deadline at the latest.
  void* tag = nullptr;
  bool ok = false;
  for (size_t ended = 0; ended < questions.size(); ++ended) answers.Next(&tag, &ok);
  answers.Shutdown();
  while (answers.Next(&tag, &ok)) {
  }

  std::vector<absl::StatusOr<WaitsReply>> replies;
  for (size_t i = 0; i < questions.size(); ++i) {
    Question& question = *questions[i];
    if (question.status.ok()) {
      replies.emplace_back(std::move(question.reply));
    } else if (question.status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      replies.emplace_back(absl::DeadlineExceededError(
          absl::StrCat("no answer within ", absl::FormatDuration(timeout))));
    } else {
      replies.emplace_back(FromGrpc(question.status, addresses[i]));
    }
  }
  return replies;
}

}  // namespace parley
