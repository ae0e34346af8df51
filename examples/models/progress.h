#pragma once

#include <cstddef>
#include <string>

namespace models {

/// Says on stderr what a program is doing: in one line that changes where stderr is a terminal, in
/// a line for each stage elsewhere.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void stage(const std::string& text);
  /// A stage of `total` steps, of which `done` are done, as a bar. Elsewhere than on a terminal
  /// every tenth of it gets a line.
  void bar(const std::string& text, size_t done, size_t total);

 private:
  bool is_terminal_;
};

}  // namespace models
