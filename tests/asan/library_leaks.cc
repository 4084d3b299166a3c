// What libraries leave behind when a process ends, and LeakSanitizer would fail a test for.

// The names that it leaves out, one a line; it asks for them by this symbol.
extern "C" const char* __lsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)

extern "C" const char* __lsan_default_suppressions() {
  // c-ares, by which gRPC looks up names: what it has read of /etc/hosts, where the process ends
  // beside a lookup.
  return "leak:libcares\n";
}
