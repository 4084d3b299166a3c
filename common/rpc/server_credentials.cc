#include "common/rpc/server_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/clock/steady_now.h"
#include "common/rpc/channel.h"

namespace parley {
namespace {

// In a time that does not tell how much of it was right.
bool AreEqual(absl::string_view one, absl::string_view other) {
  if (one.size() != other.size()) return false;
  unsigned char differs = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    differs = static_cast<unsigned char>(differs | (one[i] ^ other[i]));
  }
  return differs == 0;
}

absl::string_view Text(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

// Lets calls in that say the token. gRPC's C++ has that for TLS only, but its core for all kinds.
class TokenCredentials final : public grpc::ServerCredentials {
 public:
  TokenCredentials(std::string token, std::shared_ptr<Refusals> refusals,
                   std::shared_ptr<const RecentVisitors> visitors)
      : core_(grpc_insecure_server_credentials_create()) {
    auto* const asked = new Asked{std::move(token), std::move(refusals), std::move(visitors)};
    grpc_server_credentials_set_auth_metadata_processor(
        core_, {&Process, [](void* state) { delete static_cast<Asked*>(state); }, asked});
  }
  ~TokenCredentials() override { grpc_server_credentials_release(core_); }

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  // gRPC's, as long as it needs it.
  struct Asked {
    const std::string token;
    const std::shared_ptr<Refusals> refusals;
    const std::shared_ptr<const RecentVisitors> visitors;
  };

  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), core_);
  }

  static void Process(void* state, grpc_auth_context* /*context*/, const grpc_metadata* metadata,
                      size_t count, grpc_process_auth_metadata_done_cb done, void* user_data) {
    const Asked& asked = *static_cast<const Asked*>(state);
    bool said = false;
    bool right = false;
    for (size_t i = 0; i < count; ++i) {
      if (Text(metadata[i].key) != kTokenHeader) continue;
      said = true;
      right = AreEqual(Text(metadata[i].value), asked.token);
    }
    if (right) return done(user_data, nullptr, 0, nullptr, 0, GRPC_STATUS_OK, nullptr);
    // He may also have come long ago, and call again.
    const std::string who = asked.visitors->Who(SteadyNow());
    asked.refusals->Tell(said ? kWrongToken : kNoToken,
                         who.empty() ? "" : absl::StrCat("perhaps ", who));
    done(user_data, nullptr, 0, nullptr, 0, GRPC_STATUS_UNAUTHENTICATED,
         said ? "the call says another token than this job's: its credentials are those of another "
                "job, or of an earlier one in the same directory"
              : "the call does not say this job's token, which is in the file 'credentials' of the "
                "job's directory");
  }

  grpc_server_credentials* const core_;
};

// Takes exactly the job's own certificate. That the client has its key the handshake has shown.
class OwnCertificate final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  OwnCertificate(std::string certificate, std::shared_ptr<Refusals> refusals,
                 std::shared_ptr<const RecentVisitors> visitors)
      : certificate_(std::move(certificate)),
        refusals_(std::move(refusals)),
        visitors_(std::move(visitors)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*callback*/, grpc::Status* status) override {
    const grpc::string_ref shown = request->peer_cert();
    if (shown.data() != nullptr && shown == certificate_) {
      *status = grpc::Status::OK;
    } else {
      refusals_->Tell(shown.empty() ? kNoCertificate : kWrongCertificate,
                      visitors_->Who(SteadyNow()));
      *status = {grpc::StatusCode::UNAUTHENTICATED, "not the certificate of this job"};
    }
    return true;  // at once
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest* /*request*/) override {}

 private:
  const std::string certificate_;
  const std::shared_ptr<Refusals> refusals_;
  const std::shared_ptr<const RecentVisitors> visitors_;
};

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(
    const Credentials& credentials, std::shared_ptr<Refusals> refusals,
    std::shared_ptr<const RecentVisitors> visitors) {
  using grpc::experimental::ExternalCertificateVerifier;
  using grpc::experimental::IdentityKeyCertPair;
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
          credentials.authority,
          std::vector<IdentityKeyCertPair>{{credentials.key, credentials.certificate}}));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  // The verifier is stricter than a check by the authority, and hears of all who come.
  options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
  options.set_certificate_verifier(ExternalCertificateVerifier::Create<OwnCertificate>(
      credentials.certificate, std::move(refusals), std::move(visitors)));
  options.set_check_call_host(false);
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ServerCredentialsFor(
    const SharedCredentials& credentials, std::shared_ptr<Refusals> refusals,
    std::shared_ptr<const RecentVisitors> visitors) {
  if (credentials == nullptr) return grpc::InsecureServerCredentials();
  if (credentials->tls()) {
    return TlsCredentials(*credentials, std::move(refusals), std::move(visitors));
  }
  return std::make_shared<TokenCredentials>(credentials->token, std::move(refusals),
                                            std::move(visitors));
}

}  // namespace parley
