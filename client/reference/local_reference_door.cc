#include "client/reference/local_reference_door.h"

#include <utility>

#include "client/reference/local_reference_link.h"

namespace parley {

absl::StatusOr<std::unique_ptr<LocalReferenceDoor>> LocalReferenceDoor::Open(
    const std::string& address, std::shared_ptr<ReferenceHost> host) {
  absl::StatusOr<std::unique_ptr<LocalListener>> listener =
      LocalListener::Listen(LocalReferenceName(address));
  if (!listener.ok()) return listener.status();
  return std::unique_ptr<LocalReferenceDoor>(
      new LocalReferenceDoor(address, std::move(host), *std::move(listener)));
}

LocalReferenceDoor::LocalReferenceDoor(std::string address, std::shared_ptr<ReferenceHost> host,
                                       std::unique_ptr<LocalListener> listener)
    : address_(std::move(address)), host_(std::move(host)), listener_(std::move(listener)) {
  thread_ = std::thread([this] { Welcome(); });
}

LocalReferenceDoor::~LocalReferenceDoor() {
  listener_->Shutdown();
  thread_.join();
  std::list<Visit> visits;
  {
    absl::MutexLock lock(&mu_);
    visits.swap(visits_);
  }
  for (Visit& visit : visits) visit.guest->Close();
  for (Visit& visit : visits) visit.thread.join();
}

void LocalReferenceDoor::Welcome() {
  while (true) {
    absl::StatusOr<std::unique_ptr<LocalSocket>> socket = listener_->Accept();
    if (!socket.ok()) return;
    absl::MutexLock lock(&mu_);
    for (auto it = visits_.begin(); it != visits_.end();) {
      if (!it->gone) {
        ++it;
        continue;
      }
      it->thread.join();
      it = visits_.erase(it);
    }
    Visit& visit = visits_.emplace_back();
    visit.guest = std::make_unique<LocalReferenceGuest>(address_, host_, *std::move(socket));
    visit.thread = std::thread([&visit] {
      visit.guest->Run();
      visit.gone = true;
    });
  }
}

}  // namespace parley
