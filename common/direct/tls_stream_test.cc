#include "common/direct/tls_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "common/security/credentials_for_test.h"

namespace parley {
namespace {

using ::testing::HasSubstr;

const Credentials& Own() { return *OwnTlsCredentials(); }

SharedTlsContext ContextOf(const Credentials& credentials) {
  absl::StatusOr<SharedTlsContext> context = TlsContext::Make(credentials);
  EXPECT_TRUE(context.ok()) << context.status();
  return *std::move(context);
}

iovec PartOf(const std::string& bytes) { return {const_cast<char*>(bytes.data()), bytes.size()}; }

// The two ends, and the wire between them.
class Pair {
 public:
  explicit Pair(const Credentials& client = Own(), const Credentials& server = Own(),
                uint64_t records_of_a_key = TlsStream::kRecordsOfAKey)
      : client_(*TlsStream::Make(ContextOf(client), TlsStream::Side::kConnects, records_of_a_key)),
        server_(*TlsStream::Make(ContextOf(server), TlsStream::Side::kAccepts, records_of_a_key)) {}

  TlsStream& client() { return *client_; }
  TlsStream& server() { return *server_; }

  // What `from` has sealed comes to `to` in pieces of at most so many bytes; what it says.
  static absl::StatusOr<std::string> Move(TlsStream& from, TlsStream& to,
                                          size_t piece = size_t{1} << 20) {
    std::string sealed;
    EXPECT_EQ(from.Seal({}, sealed).value_or(0), 0u);
    return Deliver(sealed, to, piece);
  }
  static absl::StatusOr<std::string> Deliver(const std::string& sealed, TlsStream& to,
                                             size_t piece = size_t{1} << 20) {
    std::string said;
    for (size_t at = 0; at < sealed.size(); at += piece) {
      const size_t count = std::min(piece, sealed.size() - at);
      to.Came({reinterpret_cast<const std::byte*>(sealed.data()) + at, count});
      while (true) {
        std::byte room[1000];
        const absl::StatusOr<size_t> opened = to.Open(absl::MakeSpan(room));
        if (!opened.ok()) return opened.status();
        if (*opened == 0) break;
        said.append(reinterpret_cast<const char*>(room), *opened);
      }
    }
    return said;
  }

  // The greeting; the first error of either side, as it sees it.
  absl::Status Greet(size_t piece = size_t{1} << 20) {
    const std::string hello = "hello";
    const iovec part = PartOf(hello);
    for (int turn = 0; turn < 4; ++turn) {
      std::string sealed;
      if (const auto taken = client_->Seal({&part, 1}, sealed); !taken.ok()) return taken.status();
      const absl::StatusOr<std::string> said = Deliver(sealed, *server_, piece);
      if (!said.ok()) return said.status();
      if (*said == hello) return absl::OkStatus();
      EXPECT_EQ(*said, "");
      if (const auto back = Move(*server_, *client_, piece); !back.ok()) return back.status();
    }
    return absl::DeadlineExceededError("they do not come to an end");
  }

 private:
  const std::unique_ptr<TlsStream> client_;
  const std::unique_ptr<TlsStream> server_;
};

std::string Seal(TlsStream& stream, const std::vector<std::string>& texts) {
  std::vector<iovec> parts;
  size_t left = 0;
  for (const std::string& text : texts) {
    parts.push_back(PartOf(text));
    left += text.size();
  }
  std::string sealed;
  while (left > 0) {
    const absl::StatusOr<size_t> done = stream.Seal(parts, sealed);
    EXPECT_TRUE(done.ok()) << done.status();
    if (!done.ok() || *done == 0) break;
    left -= *done;
    for (size_t taken = *done; taken > 0;) {
      iovec& part = parts.front();
      const size_t of_it = std::min(taken, part.iov_len);
      part = {static_cast<char*>(part.iov_base) + of_it, part.iov_len - of_it};
      taken -= of_it;
      if (part.iov_len > 0) break;
      parts.erase(parts.begin());
    }
  }
  return sealed;
}

TEST(TlsStreamTest, WhatIsSaidComesInWhateverPieces) {
  std::mt19937 random(7);
  for (const size_t piece : {1, 3, 100, 5000, 70000}) {
    Pair pair;
    const absl::Status greeted = pair.Greet(piece);
    ASSERT_TRUE(greeted.ok()) << piece << ": " << greeted;
    for (TlsStream* const from : {&pair.client(), &pair.server()}) {
      TlsStream& to = from == &pair.client() ? pair.server() : pair.client();
      std::vector<std::string> texts;
      std::string all;
      for (const size_t size : {0, 1, 0, 16, 40000, 63, 16384, 16384, 5, 700000, 0, 48, 1, 0}) {
        std::string& text = texts.emplace_back(size, '\0');
        for (char& one : text) one = static_cast<char>(random());
        all += text;
      }
      const std::string sealed = Seal(*from, texts);
      EXPECT_EQ(sealed.find(all.substr(20, 32)), std::string::npos) << "it is not encrypted";
      const absl::StatusOr<std::string> said = Pair::Deliver(sealed, to, piece);
      ASSERT_TRUE(said.ok()) << said.status();
      EXPECT_TRUE(*said == all) << "in pieces of " << piece;
    }
  }
}

TEST(TlsStreamTest, SmallOnesShareARecord) {
  Pair pair;
  ASSERT_TRUE(pair.Greet().ok());
  const std::string sealed =
      Seal(pair.client(), std::vector<std::string>(100, std::string(64, 'x')));
  EXPECT_LT(sealed.size(), 6400u + 100u);
}

TEST(TlsStreamTest, KeysAreChangedInTime) {
  Pair pair(Own(), Own(), /*records_of_a_key=*/3);
  ASSERT_TRUE(pair.Greet().ok());
  size_t updates = 0;
  for (size_t i = 0; i < 20; ++i) {
    const std::string text(100 + i, 'k');
    for (TlsStream* const from : {&pair.client(), &pair.server()}) {
      TlsStream& to = from == &pair.client() ? pair.server() : pair.client();
      const std::string sealed = Seal(*from, {text});
      // The word of another key is a record of its own.
      updates += sealed.size() > text.size() + 40 ? 1 : 0;
      const absl::StatusOr<std::string> said = Pair::Deliver(sealed, to);
      ASSERT_TRUE(said.ok()) << said.status();
      EXPECT_EQ(*said, text);
    }
  }
  EXPECT_EQ(updates, 12u);
}

TEST(TlsStreamTest, WhatWasChangedOnTheWayIsNotTaken) {
  const std::string text(50000, 't');
  std::mt19937 random(11);
  for (int round = 0; round < 20; ++round) {
    Pair pair;
    ASSERT_TRUE(pair.Greet().ok());
    std::string sealed = Seal(pair.client(), {text});
    sealed[random() % sealed.size()] ^= static_cast<char>(1 << random() % 8);
    const absl::StatusOr<std::string> said = Pair::Deliver(sealed, pair.server());
    // A length that has become larger waits for what does not come.
    EXPECT_TRUE(said.ok() ? said->size() < text.size() : absl::IsInvalidArgument(said.status()))
        << said.status();
  }
}

TEST(TlsStreamTest, WhatWasSaidBeforeIsNotTakenAgain) {
  Pair pair;
  ASSERT_TRUE(pair.Greet().ok());
  const std::string sealed = Seal(pair.client(), {"once"});
  EXPECT_TRUE(Pair::Deliver(sealed, pair.server()).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Pair::Deliver(sealed, pair.server()).status()));
}

TEST(TlsStreamTest, AnotherJobsCertificateIsRefusedByEitherSide) {
  const Credentials other = *NewTlsCredentials();
  Pair strangers(other, Own());
  const absl::Status seen = strangers.Greet();
  EXPECT_TRUE(absl::IsPermissionDenied(seen)) << "the client sees it first: " << seen;
  // One that believes both shows the wrong one.
  Credentials both = other;
  both.authority = Own().authority;
  Pair wrong(both, Own());
  const absl::Status refused = wrong.Greet();
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("certificate"));
  // It hears of it.
  const absl::Status heard = Pair::Move(wrong.server(), wrong.client()).status();
  EXPECT_TRUE(absl::IsUnavailable(heard)) << heard;
  EXPECT_THAT(std::string(heard.message()), HasSubstr("alert"));
}

// A client that is OpenSSL alone.
class Stranger {
 public:
  // As the job's, where they are its credentials.
  explicit Stranger(const Credentials* credentials = nullptr) {
    if (credentials != nullptr) context_ = ContextOf(*credentials);
    bare_ = credentials != nullptr ? SSL_new(context_->get()) : SSL_new(Bare());
    SSL_set_bio(bare_, in_, out_);
  }
  ~Stranger() { SSL_free(bare_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  SSL* ssl() { return bare_; }

  // What the server makes of the next things that this says.
  absl::Status Say(TlsStream& server) {
    SSL_connect(bare_);
    return Pass(server);
  }
  absl::Status Pass(TlsStream& server) {
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(out_, &bytes);
    const std::string sent(bytes, static_cast<size_t>(size));
    (void)BIO_reset(out_);
    const absl::Status seen = Pair::Deliver(sent, server).status();
    if (hears_) {
      std::string back;
      EXPECT_TRUE(server.Seal({}, back).ok());
      BIO_write(in_, back.data(), static_cast<int>(back.size()));
    }
    return seen;
  }
  void CloseEars() { hears_ = false; }

 private:
  static SSL_CTX* Bare() {
    static SSL_CTX* const bare = SSL_CTX_new(TLS_method());
    return bare;
  }
  SharedTlsContext context_;
  SSL* bare_ = nullptr;
  BIO* const in_ = BIO_new(BIO_s_mem());
  BIO* const out_ = BIO_new(BIO_s_mem());
  bool hears_ = true;
};

TEST(TlsStreamTest, WhoShowsNoCertificateIsRefused) {
  Stranger stranger;
  const auto server = *TlsStream::Make(ContextOf(Own()), TlsStream::Side::kAccepts);
  absl::Status seen;
  for (int turn = 0; turn < 4 && seen.ok(); ++turn) seen = stranger.Say(*server);
  EXPECT_TRUE(absl::IsFailedPrecondition(seen)) << seen;
}

// A tenth of a second of the server's for one message that is always the same.
TEST(TlsStreamTest, WhatIsDearIsNotComputedForStrangers) {
  for (const char* const groups : {"ffdhe8192", "ffdhe2048", "P-521", "X448"}) {
    Stranger stranger;
    ASSERT_EQ(SSL_set1_groups_list(stranger.ssl(), groups), 1) << groups;
    const auto server = *TlsStream::Make(ContextOf(Own()), TlsStream::Side::kAccepts);
    EXPECT_TRUE(absl::IsInvalidArgument(stranger.Say(*server))) << groups;
  }
}

TEST(TlsStreamTest, NoMoreIsKeptOfAGreetingThanOneHas) {
  const auto server = *TlsStream::Make(ContextOf(Own()), TlsStream::Side::kAccepts);
  // The first message of a greeting, of 100,000 bytes, in records of 16,000.
  std::string hello = {1, 1, '\x86', '\xa0'};
  hello.resize(16000);
  const std::string head("\x16\x03\x01\x3e\x80", 5);
  EXPECT_TRUE(Pair::Deliver(head + hello, *server, 100).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Pair::Deliver(head + hello, *server, 100).status()));
}

TEST(TlsStreamTest, WhoWantsAnswersAndTakesNoneIsLeft) {
  Stranger stranger(&Own());
  const auto server = *TlsStream::Make(ContextOf(Own()), TlsStream::Side::kAccepts);
  for (int turn = 0; turn < 3; ++turn) ASSERT_TRUE(stranger.Say(*server).ok());
  ASSERT_EQ(SSL_is_init_finished(stranger.ssl()), 1);
  ASSERT_TRUE(server->IsGreeted());
  stranger.CloseEars();
  absl::Status seen;
  size_t updates = 0;
  for (; seen.ok() && updates < 20000; ++updates) {
    ASSERT_EQ(SSL_key_update(stranger.ssl(), SSL_KEY_UPDATE_REQUESTED), 1);
    SSL_do_handshake(stranger.ssl());
    seen = stranger.Pass(*server);
  }
  EXPECT_TRUE(absl::IsInvalidArgument(seen)) << seen;
  EXPECT_LT(updates, 5000u);
}

TEST(TlsStreamTest, WhatIsNoTlsIsNotTaken) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    const auto server = *TlsStream::Make(ContextOf(Own()), TlsStream::Side::kAccepts);
    std::string noise(2000, '\0');
    for (char& one : noise) one = static_cast<char>(random());
    if (round % 2 == 0)
      noise.replace(0, 5, "\x16\x03\x01\x02\x00", 5);  // a record of TLS, at least
    EXPECT_TRUE(
        absl::IsInvalidArgument(Pair::Deliver(noise, *server, 1 + random() % 300).status()));
  }
}

TEST(TlsContextTest, CredentialsThatAreNoneSaySo) {
  Credentials none;
  none.key = "a key";
  const absl::Status refused = TlsContext::Make(none).status();
  EXPECT_TRUE(absl::IsInternal(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("certificate"));
  Credentials other = Own();
  other.key = NewTlsCredentials()->key;
  EXPECT_THAT(std::string(TlsContext::Make(other).status().message()), HasSubstr("key"));
  other = Own();
  other.authority.clear();
  EXPECT_THAT(std::string(TlsContext::Make(other).status().message()), HasSubstr("authority"));
}

TEST(TlsContextTest, WhereAJobHasNoTlsThereIsNone) {
  EXPECT_EQ(*TlsContextFor(nullptr), nullptr);
  const auto token = std::make_shared<const Credentials>(*NewCredentials(/*tls=*/false));
  EXPECT_EQ(*TlsContextFor(token), nullptr);
  EXPECT_NE(*TlsContextFor(OwnTlsCredentials()), nullptr);
}

}  // namespace
}  // namespace parley
