#include "runtime/call/log_tensors.h"

#include <iostream>

#include "ahead/graph.h"

namespace ahead::runtime {

void log_tensors(const std::string& what, const std::vector<at::Tensor>& tensors) {
  std::string line = "[ahead] " + what + ":";
  for (size_t i = 0; i < tensors.size(); ++i) {
    line += (i == 0 ? " " : ", ") +
            (tensors[i].defined() ? TensorMeta::of(tensors[i]).str() : std::string("undefined"));
  }
  std::clog << line + "\n";
}

}  // namespace ahead::runtime
