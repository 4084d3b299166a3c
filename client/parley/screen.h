#ifndef PARLEY_CLIENT_PARLEY_SCREEN_H_
#define PARLEY_CLIENT_PARLEY_SCREEN_H_

#include <termios.h>

#include <cstdio>
#include <string>

namespace parley {

// A terminal as a page that is drawn again and again, over its other content, which comes back when
// the object goes; keys come at once and are not shown. Used by one thread.
class Screen {
 public:
  // out: a terminal. Keys are those of stdin, where that is one too.
  explicit Screen(std::FILE* out);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  int columns() const;
  int rows() const;

  // Lines, each ended, of at most so many columns and rows. False where the terminal has gone.
  bool Draw(const std::string& lines);

  // A key that was pressed since the last call; 0: none.
  char TakeKey();

 private:
  std::FILE* const out_;
  bool has_keys_ = false;
  termios before_{};  // of stdin, where has_keys_ was ever true
  bool changed_ = false;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_SCREEN_H_
