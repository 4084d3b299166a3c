#ifndef PARLEY_CLIENT_VISITORS_H_
#define PARLEY_CLIENT_VISITORS_H_

namespace parley {

// Where messages come in for which a thread of their own waits: whoever waits for one of them may
// look itself meanwhile, so that no other thread has to be woken first. Thread-safe.
class Visitors {
 public:
  virtual ~Visitors() = default;

  // Does what one message that has come asks for, its answer too, on the caller's thread; false if
  // none has come or another thread is at it. The thread that is there for them stands back for a
  // little while.
  virtual bool Visit() = 0;

  // The caller goes to sleep: the thread is to be on the watch again.
  virtual void Leave() = 0;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_VISITORS_H_
