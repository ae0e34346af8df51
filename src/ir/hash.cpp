#include "base/hash.h"

#include "ahead/graph.h"
#include "ir/text/printer.h"

namespace ahead {

// The text form names values by position and holds everything that makes two programs different, in
// one canonical spelling; so its hash is the program's.
uint64_t Graph::hash() const {
  Printer::Options program_only;
  program_only.debug_info = false;
  std::string text;
  Printer(*this, program_only).append_graph(text);
  return hash_bytes(text);
}

}  // namespace ahead
