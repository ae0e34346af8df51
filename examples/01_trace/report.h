#pragma once

#include <string>
#include <vector>

/// What the lesson found out about one model.
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
