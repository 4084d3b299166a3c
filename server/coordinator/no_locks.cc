// Loaded before a program (LD_PRELOAD): every lock on a file fails, as on file systems that have
// none.
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

extern "C" {

int flock(int, int) {
  errno = ENOLCK;
  return -1;
}

int lockf(int, int, off_t) {
  errno = ENOLCK;
  return -1;
}

int fcntl(int file, int command, ...) {
  if (command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK ||
      command == F_OFD_SETLKW) {
    errno = ENOLCK;
    return -1;
  }
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  return static_cast<int>(syscall(SYS_fcntl, file, command, argument));
}

int fcntl64(int file, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  return fcntl(file, command, argument);
}

}  // extern "C"
