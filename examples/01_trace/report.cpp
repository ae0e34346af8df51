#include "report.h"

#include <cstdio>

void print_table(const std::vector<Row>& rows) {
  std::printf("                      trace     difference to eager      step, median (ms)\n");
  std::printf("%-8s  %8s  %8s  %10s  %10s  %8s  %8s  %8s\n", "model", "nodes", "ms", "loss",
              "gradients", "eager", "graph", "ratio");
  for (const Row& row : rows) {
    std::printf("%-8s  %8zu  %8.2f  %10g  %10g  %8.2f  %8.2f  %8.2f\n", row.model.c_str(),
                row.nodes, row.trace_ms, row.loss_difference, row.gradient_difference, row.eager_ms,
                row.graph_ms, row.ratio);
  }
}
