#pragma once

#include "ahead/graph.h"

namespace ahead::native {

/// An operator whose rule gives ATen's bits in a kernel that is lowered strictly, for the calls of
/// which `holds` says so.
struct ExactRule {
  const char* name;  ///< of the operator, as graphs print it
  bool (*holds)(const Node& node);
};

/// All of them; null: the end.
extern const ExactRule exact_rules[];

/// Whether a kernel for this node, lowered strictly, gives ATen's bits: the rule is ATen's formula,
/// rounded where ATen rounds, and what ATen gives for an element does not depend on where it lies.
/// False for nodes without a rule.
bool has_exact_rule(const Node& node);

}  // namespace ahead::native
