#include "common/shared_memory/local_door.h"

#include <utility>

namespace parley {

absl::StatusOr<std::unique_ptr<LocalDoor>> LocalDoor::Open(const std::string& name, Host host) {
  absl::StatusOr<std::unique_ptr<LocalListener>> listener = LocalListener::Listen(name);
  if (!listener.ok()) return listener.status();
  return std::unique_ptr<LocalDoor>(new LocalDoor(std::move(host), *std::move(listener)));
}

LocalDoor::LocalDoor(Host host, std::unique_ptr<LocalListener> listener)
    : host_(std::move(host)), listener_(std::move(listener)) {
  thread_ = std::thread([this] { Welcome(); });
}

LocalDoor::~LocalDoor() {
  listener_->Shutdown();
  thread_.join();
  std::list<Guest> guests;
  {
    absl::MutexLock lock(&mu_);
    guests.swap(guests_);
  }
  for (Guest& guest : guests) guest.visit->Close();
  for (Guest& guest : guests) guest.thread.join();
}

void LocalDoor::Welcome() {
  while (true) {
    absl::StatusOr<std::unique_ptr<LocalSocket>> socket = listener_->Accept();
    if (!socket.ok()) return;
    absl::MutexLock lock(&mu_);
    for (auto it = guests_.begin(); it != guests_.end();) {
      if (!it->gone) {
        ++it;
        continue;
      }
      it->thread.join();
      it = guests_.erase(it);
    }
    Guest& guest = guests_.emplace_back();
    guest.visit = host_(*std::move(socket));
    guest.thread = std::thread([&guest] {
      guest.visit->Run();
      guest.gone = true;
    });
  }
}

}  // namespace parley
