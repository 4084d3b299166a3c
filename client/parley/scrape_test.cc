#include "client/parley/scrape.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/clock/testing/becomes.h"
#include "common/file_descriptor.h"
#include "common/metrics/metrics.h"

namespace parley {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

// Listens on a port of this machine; whoever connects waits until Answer.
class Listener {
 public:
  Listener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(fd_.get(), 8), 0);
    EXPECT_EQ(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(at.sin_port));
  }

  const std::string& address() const { return address_; }

  // Takes one connection, reads a question, answers in small pieces, and closes.
  std::string Answer(const std::string& bytes) const {
    FileDescriptor peer(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::string question;
    std::array<char, 4096> buffer{};
    while (question.find("\r\n\r\n") == std::string::npos) {
      const ssize_t got = ::recv(peer.get(), buffer.data(), buffer.size(), 0);
      if (got <= 0) break;
      question.append(buffer.data(), static_cast<size_t>(got));
    }
    for (size_t at = 0; at < bytes.size(); at += 7) {
      const std::string piece = bytes.substr(at, 7);
      (void)::send(peer.get(), piece.data(), piece.size(), MSG_NOSIGNAL);
    }
    return question;
  }

 private:
  FileDescriptor fd_;
  std::string address_;
};

absl::StatusOr<std::string> ScrapeOf(const std::string& answer) {
  const Listener server;
  std::thread answers([&] { server.Answer(answer); });
  auto scrapes = ScrapeAll({server.address()}, kPatience);
  answers.join();
  return scrapes.at(server.address());
}

TEST(ScrapeAll, ReadsWhatOurProcessesServe) {
  Metrics metrics;
  metrics.SetIdentity("small", "worker", "worker-0");
  metrics.Gauge("parley_step", "The last decided step.").Set(12);
  ASSERT_TRUE(metrics.Serve("127.0.0.1:0").ok());
  const auto scrapes = ScrapeAll({metrics.address()}, kPatience);
  ASSERT_TRUE(scrapes.at(metrics.address()).ok()) << scrapes.at(metrics.address()).status();
  EXPECT_NE(scrapes.at(metrics.address())->find("parley_step{"), std::string::npos);
}

TEST(ScrapeAll, ReadsWithAndWithoutALength) {
  EXPECT_EQ(*ScrapeOf("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstep 1"), "step 1");
  EXPECT_EQ(*ScrapeOf("HTTP/1.0 200 OK\r\ncontent-length:6 \r\nX: y\r\n\r\nstep 1"), "step 1");
  EXPECT_EQ(*ScrapeOf("HTTP/1.0 200 OK\r\n\r\nstep 1"), "step 1");
  EXPECT_EQ(*ScrapeOf("HTTP/1.0 200 OK\r\n\r\n"), "");
}

TEST(ScrapeAll, WhatIsNoAnswerIsNone) {
  for (const char* answer :
       {"", "HTTP/1.1 200 OK\r\n", "SSH-2.0-OpenSSH_9.2\r\n\r\n", "HTTP/1.1 404 Not Found\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nstep 1",
        "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nstep 1"}) {
    const auto scrape = ScrapeOf(answer);
    EXPECT_TRUE(absl::IsDataLoss(scrape.status()) || absl::IsUnavailable(scrape.status()))
        << answer << ": " << scrape.status();
  }
}

TEST(ScrapeAll, AsksForMetrics) {
  const Listener server;
  std::string question;
  std::thread answers([&] { question = server.Answer("HTTP/1.0 200 OK\r\n\r\n"); });
  ScrapeAll({server.address()}, kPatience);
  answers.join();
  EXPECT_EQ(question.rfind("GET /metrics HTTP/1.0\r\n", 0), 0U) << question;
}

TEST(ScrapeAll, OneThatDoesNotAnswerDoesNotHideTheOthers) {
  Metrics metrics;
  ASSERT_TRUE(metrics.Serve("127.0.0.1:0").ok());
  const Listener silent;
  std::string nobody;
  {
    const Listener gone;
    nobody = gone.address();
  }
  const auto scrapes =
      ScrapeAll({silent.address(), metrics.address(), nobody, "no address"}, absl::Seconds(5));
  EXPECT_TRUE(scrapes.at(metrics.address()).ok()) << scrapes.at(metrics.address()).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(scrapes.at(silent.address()).status()));
  EXPECT_TRUE(absl::IsUnavailable(scrapes.at(nobody).status())) << scrapes.at(nobody).status();
  EXPECT_TRUE(absl::IsInvalidArgument(scrapes.at("no address").status()));
}

TEST(ScrapePoller, GivesEachRoundOnce) {
  Metrics metrics;
  ASSERT_TRUE(metrics.Serve("127.0.0.1:0").ok());
  ScrapePoller poller(kPatience);
  EXPECT_FALSE(poller.Take());
  for (int round = 0; round < 3; ++round) {
    poller.Ask({metrics.address()});
    poller.Ask({"no address"});  // one is open already
    std::optional<Scrapes> scrapes;
    ASSERT_TRUE(Becomes([&] { return (scrapes = poller.Take()).has_value(); }, kPatience));
    EXPECT_EQ(scrapes->size(), 1U);
    EXPECT_TRUE(scrapes->at(metrics.address()).ok());
    EXPECT_FALSE(poller.Take());
  }
}

}  // namespace
}  // namespace parley
