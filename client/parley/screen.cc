#include "client/parley/screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace parley {
namespace {

// Another page, no cursor, no wrapping of long lines; and back.
constexpr char kBegin[] = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr char kEnd[] = "\x1b[?7h\x1b[?25h\x1b[?1049l";

winsize SizeOf(std::FILE* out) {
  winsize size = {};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    size.ws_col = 80;
    size.ws_row = 24;
  }
  return size;
}

}  // namespace

Screen::Screen(std::FILE* out) : out_(out) {
  if (tcgetattr(STDIN_FILENO, &before_) == 0) {
    termios keys = before_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    keys.c_cc[VMIN] = 0;
    keys.c_cc[VTIME] = 0;
    changed_ = has_keys_ = tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
  }
  std::fputs(kBegin, out_);
  std::fflush(out_);
}

Screen::~Screen() {
  std::fputs(kEnd, out_);
  std::fflush(out_);
  if (changed_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

int Screen::columns() const { return SizeOf(out_).ws_col; }

int Screen::rows() const { return SizeOf(out_).ws_row; }

bool Screen::Draw(const std::string& lines) {
  // Line over line, so that nothing flickers.
  std::string drawn = "\x1b[H";
  size_t begin = 0;
  while (begin < lines.size()) {
    const size_t end = lines.find('\n', begin);
    if (begin != 0) drawn += "\r\n";
    drawn.append(lines, begin, end - begin);
    drawn += "\x1b[K";
    begin = end == std::string::npos ? lines.size() : end + 1;
  }
  drawn += "\x1b[J";
  return std::fputs(drawn.c_str(), out_) >= 0 && std::fflush(out_) == 0;
}

char Screen::TakeKey() {
  pollfd keys = {STDIN_FILENO, POLLIN, 0};
  if (!has_keys_ || ::poll(&keys, 1, 0) <= 0) return 0;
  char key = 0;
  if (::read(STDIN_FILENO, &key, 1) == 1) return key;
  has_keys_ = false;  // it has been closed
  return 0;
}

}  // namespace parley
