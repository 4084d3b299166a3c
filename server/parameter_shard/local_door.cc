#include "server/parameter_shard/local_door.h"

#include <utility>

#include "common/shared_memory/local_slices.h"

namespace parley {

absl::StatusOr<std::unique_ptr<LocalDoor>> LocalDoor::Open(LocalGuest::Options options) {
  absl::StatusOr<std::unique_ptr<LocalListener>> listener =
      LocalListener::Listen(LocalName(options.address));
  if (!listener.ok()) return listener.status();
  return std::unique_ptr<LocalDoor>(new LocalDoor(std::move(options), *std::move(listener)));
}

LocalDoor::LocalDoor(LocalGuest::Options options, std::unique_ptr<LocalListener> listener)
    : options_(std::move(options)), listener_(std::move(listener)) {
  thread_ = std::thread([this] { Welcome(); });
}

LocalDoor::~LocalDoor() {
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

void LocalDoor::Welcome() {
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
    visit.guest = std::make_shared<LocalGuest>(options_, *std::move(socket));
    visit.thread = std::thread([&visit] {
      visit.guest->Run();
      visit.gone = true;
    });
  }
}

}  // namespace parley
