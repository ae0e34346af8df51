#pragma once

#include <string>
#include <vector>

/// Says on stderr what the program is doing: in one line that changes where stderr is a terminal,
/// in a line for each stage elsewhere.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void stage(const std::string& text);

 private:
  bool is_terminal_;
};

/// What the demo found out about one model.
struct Row {
  std::string model;
  size_t nodes = 0;
  double trace_ms = 0;
  double loss_difference = 0;
  double gradient_difference = 0;
  double eager_ms = 0;
  double graph_ms = 0;
  double ratio = 0;
};

/// Prints all rows on stdout as one table.
void print_table(const std::vector<Row>& rows);
