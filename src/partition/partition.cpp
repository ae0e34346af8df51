#include "ahead/partition.h"

namespace ahead {

int64_t PartitionedGraphs::saved_bytes() const {
  int64_t bytes = 0;
  for (const SavedValue& value : saved) bytes += value.bytes;
  return bytes;
}

std::string PartitionedGraphs::explain() const {
  std::string text;
  for (const PartitionDecision& decision : decisions) {
    text += decision.saved ? "saved      " : "recomputed ";
    text += std::to_string(decision.bytes) + " bytes  " + decision.node + "\n           " +
            decision.reason + "\n";
  }
  return text;
}

}  // namespace ahead
