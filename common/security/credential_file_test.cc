#include "common/security/credential_file.h"

#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

class CredentialFileTest : public testing::Test {
 protected:
  CredentialFileTest() { std::filesystem::create_directories(folder_); }
  ~CredentialFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Read() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Write(const std::string& text) const { std::ofstream(path_) << text; }

  const std::string folder_ = absl::StrCat(
      testing::TempDir(), "/", testing::UnitTest::GetInstance()->current_test_info()->name());
  const std::string path_ = absl::StrCat(folder_, "/", kCredentialFile);
};

std::shared_ptr<X509> Certificate(const std::string& pem) {
  const std::shared_ptr<BIO> text(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())),
                                  BIO_free);
  return {PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr), X509_free};
}

TEST_F(CredentialFileTest, ThereAreNoneUntilTheyAreMade) {
  EXPECT_TRUE(absl::IsNotFound(ReadCredentials(path_).status()));
  const auto made = ReadOrMakeCredentials(path_, /*tls=*/true);
  ASSERT_TRUE(made.ok()) << made.status();
  const auto read = ReadCredentials(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)->token, (*made)->token);
  EXPECT_EQ((*read)->key, (*made)->key);
  EXPECT_EQ((*read)->certificate, (*made)->certificate);
  EXPECT_EQ((*read)->authority, (*made)->authority);
  EXPECT_TRUE((*read)->tls());
}

TEST_F(CredentialFileTest, OnlyTheOwnerCanReadIt) {
  ASSERT_TRUE(ReadOrMakeCredentials(path_, true).ok());
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(chmod(path_.c_str(), 0640), 0);
  const auto refused = ReadOrMakeCredentials(path_, true);
  EXPECT_TRUE(absl::IsPermissionDenied(refused.status())) << refused.status();
  EXPECT_NE(refused.status().message().find("chmod 600"), std::string::npos);
}

// With OpenSSL as the judge, as on the wire.
TEST_F(CredentialFileTest, TheAuthorityHasSignedTheCertificateAndNoOtherJobsDoes) {
  const auto job = ReadOrMakeCredentials(path_, true);
  const auto other = ReadOrMakeCredentials(path_ + ".other", true);
  ASSERT_TRUE(job.ok() && other.ok());
  EXPECT_NE((*job)->token, (*other)->token);
  const auto certificate = Certificate((*job)->certificate);
  ASSERT_NE(certificate, nullptr);
  EXPECT_EQ(X509_check_host(certificate.get(), kTlsName, 0, 0, nullptr), 1);
  const auto verified = [&](const std::string& authority) {
    const std::shared_ptr<X509_STORE> store(X509_STORE_new(), X509_STORE_free);
    X509_STORE_add_cert(store.get(), Certificate(authority).get());
    const std::shared_ptr<X509_STORE_CTX> context(X509_STORE_CTX_new(), X509_STORE_CTX_free);
    X509_STORE_CTX_init(context.get(), store.get(), certificate.get(), nullptr);
    return X509_verify_cert(context.get()) == 1;
  };
  EXPECT_TRUE(verified((*job)->authority));
  EXPECT_FALSE(verified((*other)->authority));
  const std::shared_ptr<BIO> text(
      BIO_new_mem_buf((*job)->key.data(), static_cast<int>((*job)->key.size())), BIO_free);
  const std::shared_ptr<EVP_PKEY> key(
      PEM_read_bio_PrivateKey(text.get(), nullptr, nullptr, nullptr), EVP_PKEY_free);
  EXPECT_EQ(X509_check_private_key(certificate.get(), key.get()), 1);
}

TEST_F(CredentialFileTest, WithoutTlsThereIsATokenOnly) {
  const auto made = ReadOrMakeCredentials(path_, /*tls=*/false);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_FALSE((*made)->tls());
  EXPECT_GE((*made)->token.size(), 64u);
}

TEST_F(CredentialFileTest, AllThatComeAtOnceHaveTheSame) {
  std::vector<std::string> keys(8);
  std::vector<std::thread> threads;
  for (std::string& key : keys) {
    threads.emplace_back([&] {
      const auto made = ReadOrMakeCredentials(path_, true);
      if (made.ok()) key = (*made)->key;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(keys[0].empty());
  for (const std::string& key : keys) EXPECT_EQ(key, keys[0]);
  size_t files = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(folder_)) ++files;
  EXPECT_EQ(files, 1u);
}

TEST_F(CredentialFileTest, WhatIsCutShortOrIsNoSuchFileIsRefused) {
  ASSERT_TRUE(ReadOrMakeCredentials(path_, true).ok());
  const std::string whole = Read();
  const size_t token_only = whole.find("-----BEGIN");
  for (size_t size = 0; size < whole.size(); size += 7) {
    Write(whole.substr(0, size));
    if (size == token_only) continue;  // that is a file too: of a job without TLS
    EXPECT_TRUE(absl::IsDataLoss(ReadCredentials(path_).status())) << size;
  }
  Write(whole + "more");
  EXPECT_TRUE(absl::IsDataLoss(ReadCredentials(path_).status()));
  Write(std::string(1 << 20, 'x'));
  EXPECT_TRUE(absl::IsDataLoss(ReadOrMakeCredentials(path_, true).status()));
}

TEST_F(CredentialFileTest, SaysWhereItCannotBeMade) {
  const auto refused = ReadOrMakeCredentials(folder_ + "/none/credentials", true);
  EXPECT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find(folder_ + "/none/credentials"), std::string::npos);
}

}  // namespace
}  // namespace parley
