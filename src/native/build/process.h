#pragma once

#include <string>
#include <vector>

namespace ahead::native {

/// What a program that was run left behind.
struct ProcessResult {
  bool started = false;
  /// The exit status; -1 if a signal ended it.
  int status = -1;
  /// What it wrote to its output and error streams.
  std::string output;

  bool ok() const { return started && status == 0; }
};

/// Runs a program, given by its path, with these arguments; no shell is involved. Threads may run
/// several at once.
ProcessResult run_process(const std::string& program, const std::vector<std::string>& arguments);

/// Ends the programs that run_process is running, and those that it starts later: for the end of
/// this process.
void end_processes();
/// Whether that was called.
bool are_processes_ended();

}  // namespace ahead::native
