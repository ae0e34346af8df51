#include "partition/recompute_rules.h"

#include <algorithm>

#include "ops/facts/facts.h"
#include "ops/facts/grad_mode.h"
#include "ops/facts/large_products.h"
#include "ops/facts/node_facts.h"

namespace ahead::partition {
namespace {

struct Case {
  const Node& node;
  const Role& role;
  const PartitionOptions& options;
  /// How many cheap nodes in a row lead to this one.
  int32_t chain;
};

struct Rule {
  bool (*fits)(const Case&);
  Again again;
  const char* reason;  ///< null: the one among the operator's facts
};

bool in_namespace(const Case& c, std::initializer_list<std::string_view> names) {
  const std::string_view name = c.node.op().name();
  const std::string_view space = name.substr(0, name.find('.'));
  return std::find(names.begin(), names.end(), space) != names.end();
}

template <Tag tag>
bool has(const Case& c) {
  return c.node.has(tag);
}

template <ops::Recompute recompute>
bool is(const Case& c) {
  return ops::facts(c.node.op()).recompute == recompute;
}

/// Grad mode is off while a backward graph runs.
bool depends_on_grad_mode(const Case& c) {
  return ops::depends_on_grad_mode(c.node);
}

/// Whether the backward looks where a value is equal to another one, as the gradient of a largest
/// number does.
bool is_looked_for(const Value& value) {
  return std::any_of(value.users().begin(), value.users().end(), [](const Node* user) {
    if (ops::is_view(*user))
      return std::any_of(user->results().begin(), user->results().end(),
                         [](const Value* view) { return view != nullptr && is_looked_for(*view); });
    const std::string& name = user->op().name();
    return user->phase == Phase::Backward && (name == "aten.eq.Tensor" || name == "aten.ne.Tensor");
  });
}

/// A backend that fuses operators rounds otherwise where it computes them among others.
bool would_not_be_found(const Case& c) {
  return !c.options.fused_operators.empty() &&
         std::any_of(c.node.results().begin(), c.node.results().end(), [](const Value* result) {
           return result != nullptr && is_looked_for(*result);
         });
}

/// Products are multiplied again only where what they save is worth it.
bool is_fused(const Case& c) {
  const std::vector<std::string>& fused = c.options.fused_operators;
  if (std::find(fused.begin(), fused.end(), c.node.op().name()) == fused.end()) return false;
  return ops::facts(c.node.op()).op_class != ops::OpClass::MatMul || ops::is_large_product(c.node);
}

const Rule rules[] = {
    {[](const Case& c) { return c.role.never_in_backward; }, Again::Never,
     "reads memory in which the backward finds other contents"},
    {[](const Case& c) { return c.role.is_read_later; }, Again::Never,
     "the caller gets it, and the backward reads what it holds then"},
    {[](const Case& c) { return ops::is_random(c.node); }, Again::Never,
     "random: a second run would draw other numbers"},
    {[](const Case& c) { return ops::has_effect(c.node); }, Again::Never,
     "has an effect that must happen once"},
    {[](const Case& c) { return ops::is_uninitialised(c.node) && !ops::is_only_filled(c.node); },
     Again::Never, "memory that nobody wrote: a second piece of it has other contents"},
    {depends_on_grad_mode, Again::Never,
     "keeps what its gradient needs only where it runs in the forward"},
    {[](const Case& c) {
       return in_namespace(c, {"_c10d_functional", "c10d", "c10d_functional"});
     },
     Again::Never, "a collective: all processes must take part, once"},
    {[](const Case& c) { return !c.node.op().in_dispatcher(); }, Again::Never,
     "a sub-graph: its cost is unknown"},
    {has<Tag::MustBeInForward>, Again::Never, "tagged must_be_in_forward"},
    {has<Tag::MustSave>, Again::Never, "tagged must_save"},
    {[](const Case& c) { return c.role.written_in_backward; }, Again::Must,
     "the backward writes to it, so that each run needs its own"},
    {has<Tag::MustRecompute>, Again::Must, "tagged must_recompute"},
    {[](const Case& c) { return ops::is_view(c.node); }, Again::View, nullptr},
    {would_not_be_found, Again::Never,
     "the backward looks for the very number, which may come out otherwise the second time"},
    {has<Tag::PreferSave>, Again::Expensive, "tagged prefer_save"},
    {has<Tag::PreferRecompute>, Again::Cheap, "tagged prefer_recompute"},
    {[](const Case& c) {
       return ops::is_custom(c.node.op()) && !c.options.recompute_custom_operators;
     },
     Again::Never, "a custom operator: its cost is unknown"},
    {is<ops::Recompute::Never>, Again::Never, nullptr},
    {[](const Case& c) { return c.options.aggressive_recomputation; }, Again::Cheap,
     "aggressive_recomputation: everything counts as cheap"},
    {[](const Case& c) {
       return c.options.recompute_reductions &&
              ops::facts(c.node.op()).op_class == ops::OpClass::Reduction;
     },
     Again::Cheap, "a reduction, which the options call cheap"},
    {is_fused, Again::Cheap, "the backend computes it in one pass with what reads it"},
    {is<ops::Recompute::Expensive>, Again::Expensive, nullptr},
    {[](const Case& c) {
       return c.options.longest_chain > 0 && c.chain > 0 && c.chain % c.options.longest_chain == 0;
     },
     Again::Expensive, "in a long chain of cheap operators, which take long together"},
    {[](const Case&) { return true; }, Again::Cheap, nullptr},
};

Ruling rule_on(const Case& c) {
  for (const Rule& rule : rules) {
    if (!rule.fits(c)) continue;
    const char* reason = rule.reason;
    return {rule.again, reason != nullptr ? reason : ops::facts(c.node.op()).recompute_reason};
  }
  return {};
}

}  // namespace

std::vector<Ruling> apply_recompute_rules(const JointFacts& joint,
                                          const PartitionOptions& options) {
  std::vector<Ruling> rulings;
  rulings.reserve(joint.nodes.size());
  std::vector<int32_t> chains(joint.nodes.size());
  for (size_t i = 0; i < joint.nodes.size(); ++i) {
    int32_t longest = 0;
    joint.nodes[i]->for_each_operand([&](const Value* value) {
      const int32_t producer = joint.producer[value->id()];
      if (producer >= 0) longest = std::max(longest, chains[static_cast<size_t>(producer)]);
    });
    rulings.push_back(rule_on({*joint.nodes[i], joint.roles[i], options, longest + 1}));
    const Again again = rulings.back().again;
    // A node that is not ruled cheap ends the chain.
    chains[i] = again == Again::Cheap ? longest + 1 : again == Again::View ? longest : 0;
  }
  return rulings;
}

}  // namespace ahead::partition
