#include "models/progress.h"

#include <unistd.h>

#include <cstdio>

namespace models {

Progress::Progress() : is_terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (is_terminal_) std::fputs("\r\033[K", stderr);
}

void Progress::stage(const std::string& text) {
  std::fprintf(stderr, is_terminal_ ? "\r\033[K%s" : "%s\n", text.c_str());
  std::fflush(stderr);
}

void Progress::bar(const std::string& text, size_t done, size_t total) {
  constexpr size_t width = 40;
  const bool is_tenth = done * 10 / total != (done - 1) * 10 / total;
  if (!is_terminal_ && !is_tenth) return;
  const size_t filled = done * width / total;
  stage("[" + std::string(filled, '=') + std::string(width - filled, ' ') + "] " +
        std::to_string(done) + "/" + std::to_string(total) + "  " + text);
}

}  // namespace models
