#include "native/place/phases.h"

#include <algorithm>

namespace ahead::native {
namespace {

/// What costs at most so much is computed again rather than kept.
constexpr int cheap = 4;

class Division {
 public:
  explicit Division(const Kernel& kernel)
      : kernel_(kernel),
        is_kept_(kernel.terms.size()),
        last_use_(kernel.terms.size(), -1),
        seen_(kernel.terms.size(), -1) {
    phases_.level.resize(kernel.terms.size());
    phases_.row_buffers.assign(kernel.terms.size(), -1);
  }

  Phases run() {
    find_levels();
    add_roots();
    // The last first: what a pass has to keep, it has to compute.
    const auto num_phases = static_cast<int32_t>(phases_.phases.size());
    for (int32_t pass = num_phases; pass-- > 0;) find_kept(pass);
    for (int32_t pass = 0; pass < num_phases; ++pass) fill(pass);
    add_row_terms();
    choose_row_buffers();
    return std::move(phases_);
  }

 private:
  const Term& term(TermId id) const { return kernel_.terms[static_cast<size_t>(id)]; }
  int32_t& level(TermId id) { return phases_.level[static_cast<size_t>(id)]; }
  Phase& phase(int32_t level) { return phases_.phases[static_cast<size_t>(level)]; }
  const Buffer& buffer(int32_t index) const { return kernel_.buffers[static_cast<size_t>(index)]; }

  bool varies_along_columns(const Buffer& buffer) const {
    return std::any_of(buffer.columns.begin(), buffer.columns.end(),
                       [](int64_t stride) { return stride != 0; });
  }

  void find_levels() {
    int32_t most = 0;
    for (size_t i = 0; i < kernel_.terms.size(); ++i) {
      const Term& term = kernel_.terms[i];
      int32_t& own = phases_.level[i];
      for (const TermId operand : term.operands) own = std::max(own, level(operand));
      if (is_row_reduction(term.op)) ++own;
      most = std::max(most, own);
    }
    phases_.phases.resize(static_cast<size_t>(most) + 1);
  }

  void add_roots() {
    for (size_t i = 0; i < kernel_.terms.size(); ++i) {
      const auto id = static_cast<TermId>(i);
      if (is_row_reduction(term(id).op)) phase(level(id) - 1).reductions.push_back(id);
    }
    for (size_t i = 0; i < kernel_.stores.size(); ++i) {
      const auto& [stored, target] = kernel_.stores[i];
      const bool in_pass = varies_along_columns(buffer(target));
      Phase& when = phase(level(stored));
      (in_pass ? when.stores : when.row_stores).push_back(i);
    }
    for (size_t i = 0; i < kernel_.sums.size(); ++i) {
      const Kernel::Sum& sum = kernel_.sums[i];
      Phase& when = phase(level(sum.term));
      (sum.kind == Kernel::Sum::Kind::Rows ? when.row_sums : when.sums).push_back(i);
    }
  }

  /// What computing it in a pass costs: loads, rows, numbers and what is kept are there.
  int cost(TermId id) const {
    const Term& t = term(id);
    if (!t.by_column) return 0;
    int sum = traits_of(t.op).cost;
    for (const TermId operand : t.operands) {
      if (sum > cheap) break;
      sum += is_kept_[static_cast<size_t>(operand)] ? 1 : cost(operand);
    }
    return sum;
  }

  template <class Visit>
  void for_each_root(int32_t pass, const Visit& visit) {
    const Phase own = phase(pass);
    for (const TermId reduction : own.reductions) visit(term(reduction).operands[0]);
    for (const size_t store : own.stores) visit(kernel_.stores[store].term);
    for (const size_t sum : own.sums) visit(kernel_.sums[sum].term);
    for (const TermId kept : own.kept) visit(kept);
  }

  /// Finds what earlier passes have to keep for this one: what is dear to compute again, unless it
  /// is cheap to compute from what else is kept.
  void find_kept(int32_t pass) {
    std::vector<TermId> found;
    std::fill(seen_.begin(), seen_.end(), -1);
    for_each_root(pass, [&](TermId root) { collect(root, pass, found); });
    std::sort(found.begin(), found.end());
    std::vector<TermId> added;
    for (const TermId id : found) {
      if (is_kept_[static_cast<size_t>(id)]) continue;
      is_kept_[static_cast<size_t>(id)] = true;
      added.push_back(id);
    }
    for (size_t i = added.size(); i-- > 0;) {
      if (cost(added[i]) <= cheap) is_kept_[static_cast<size_t>(added[i])] = false;
    }
    for (const TermId id : added) {
      if (is_kept_[static_cast<size_t>(id)]) phase(level(id)).kept.push_back(id);
    }
  }

  void collect(TermId id, int32_t pass, std::vector<TermId>& found) {
    const auto index = static_cast<size_t>(id);
    if (!term(id).by_column || seen_[index] == pass) return;
    seen_[index] = pass;
    if (level(id) < pass && cost(id) > cheap) return found.push_back(id);
    for (const TermId operand : term(id).operands) collect(operand, pass, found);
  }

  /// What a pass computes, in order.
  void fill(int32_t pass) {
    std::fill(seen_.begin(), seen_.end(), -1);
    for_each_root(pass, [&](TermId root) { visit(root, pass); });
  }

  void visit(TermId id, int32_t pass) {
    const auto index = static_cast<size_t>(id);
    if (!term(id).by_column || seen_[index] == pass) return;
    seen_[index] = pass;
    if (level(id) < pass && is_kept_[index]) {
      last_use_[index] = std::max(last_use_[index], pass);
    } else {
      for (const TermId operand : term(id).operands) visit(operand, pass);
    }
    phase(pass).terms.push_back(id);
  }

  void add_row_terms() {
    for (size_t i = 0; i < kernel_.terms.size(); ++i) {
      const auto id = static_cast<TermId>(i);
      const Term& t = term(id);
      if (t.by_column || is_row_reduction(t.op)) continue;
      (t.by_row ? phase(level(id)).row_terms : phases_.constants).push_back(id);
    }
  }

  /// A buffer is free again when the last pass that reads it is over.
  void choose_row_buffers() {
    std::vector<int32_t> busy_until;
    for (size_t i = 0; i < phases_.phases.size(); ++i) {
      for (const TermId id : phases_.phases[i].kept) {
        size_t chosen = 0;
        while (chosen < busy_until.size() && busy_until[chosen] >= static_cast<int32_t>(i))
          ++chosen;
        if (chosen == busy_until.size()) busy_until.push_back(0);
        busy_until[chosen] = last_use_[static_cast<size_t>(id)];
        phases_.row_buffers[static_cast<size_t>(id)] = static_cast<int32_t>(chosen);
      }
    }
    phases_.num_row_buffers = static_cast<int32_t>(busy_until.size());
  }

  const Kernel& kernel_;
  Phases phases_;
  std::vector<bool> is_kept_;
  std::vector<int32_t> last_use_;  ///< the last pass that reads it from a row buffer
  std::vector<int32_t> seen_;      ///< the last pass that it was visited in
};

}  // namespace

Phases divide(const Kernel& kernel) {
  return Division(kernel).run();
}

}  // namespace ahead::native
