#include "fuzz/call_numbers.h"
#include "fuzz/draft.h"
#include "fuzz/prelude.h"

namespace ahead::fuzz {
namespace {

void add_number_of_call(Draft& draft) {
  constexpr CallNumbers standing;
  draft.add(draft.random.chance(0.6) ? standing.batch : standing.count);
}

void number(Draft& draft) {
  add_number_of_call(draft);
}

void rate(Draft& draft) {
  draft.take(floating);
  draft.add_number({CallNumbers().rate});
}

Propose with_number(Filter filter) {
  return [filter](Draft& draft) {
    draft.take(filter);
    add_number_of_call(draft);
  };
}

void rows(Draft& draft) {
  draft.take(both(numeric, rank_from(1)));
  add_number_of_call(draft);
}

}  // namespace

Family size_family() {
  Family f{"sizes", 5, {}};
  f.add(number, FUZZ_VALUE(at::arange(n[0])));
  f.add(number, FUZZ_VALUE(at::zeros({n[0], 3})));
  f.add(number, FUZZ_VALUE(at::rand({n[0], 2})));
  f.add(number, FUZZ_VALUE(at::full({n[0]}, n[0], at::kFloat)));
  f.add(number, FUZZ_VALUE(at::scalar_tensor(n[0], at::kFloat)));
  f.add(number, FUZZ_VALUE(at::linspace(0, 1, n[0])));
  f.add(with_number(floating), FUZZ_VALUE(t[0] * (n[0] % 2 + 1)));
  f.add(with_number(floating), FUZZ_VALUE(t[0] * static_cast<double>(n[0])));
  f.add(with_number(floating), FUZZ_VALUE(t[0] / static_cast<double>(n[0])));
  f.add(with_number(floating), FUZZ_VALUE(t[0] * (1 / static_cast<double>(n[0]))));
  f.add(with_number(floating), FUZZ_VALUE(t[0] + std::sqrt(static_cast<double>(n[0]))));
  f.add(with_number(numeric), FUZZ_VALUE(t[0] + std::min<int64_t>(n[0], 5)));
  f.add(with_number(floating), FUZZ_VALUE(t[0] * number_in_table(n[0])));
  f.add(with_number(floating), FUZZ_VALUE(n[0] % 3 == 0 ? at::sin(t[0]) : at::exp(-t[0].abs())));
  f.add(with_number(floating), FUZZ_EFFECT(t[0].mul_(n[0] % 2 + 1)));
  f.add(with_number(floating), FUZZ_EFFECT(t[0].add_(t[0].detach(), number_in_table(n[0]))));
  f.add(rows, FUZZ_VALUE(t[0].slice(0, 0, std::min<int64_t>(n[0], 4))));
  f.add(rows, FUZZ_VALUE(t[0].slice(0, n[0] / 2)));
  f.add(rows, FUZZ_VALUE(t[0].slice(0, 0, n[0] - 1)));
  f.add(rows, FUZZ_VALUE(t[0].slice(0, n[0] % 2, std::nullopt, 2)));
  f.add(rows, FUZZ_VALUE(t[0].narrow(0, 0, t[0].size(0) / 2)));
  f.add(rows, FUZZ_VALUE(t[0].select(0, t[0].size(0) - 1)));
  f.add(rows, FUZZ_VALUE(t[0].reshape({t[0].size(0), -1})));
  f.add(rows, FUZZ_VALUE(t[0].reshape({-1, t[0].size(-1)})));
  f.add(rows, FUZZ_VALUE(t[0].sum(0) / static_cast<double>(t[0].size(0))));
  f.add(rows, FUZZ_VALUE(t[0].unsqueeze(0).repeat_interleave(n[0] % 3 + 1, 0)));
  f.add(rows, FUZZ_VALUE(at::roll(t[0], {n[0]}, {0})));
  f.add(rows, FUZZ_VALUE(at::topk(t[0], std::min(n[0], t[0].size(0)), 0)));
  f.add(rows, FUZZ_VALUE(at::arange(t[0].size(0)) < n[0] % 5));
  f.add(rows, FUZZ_VALUE(t[0].index({t[0].detach().select(-1, 0) > 0}).sum(0)));
  f.add(rows, FUZZ_VALUE(t[0].masked_select(t[0].detach() > 0).sum()));
  f.add(rows, FUZZ_VALUE(at::nonzero(t[0].detach()).sum(0)));
  f.add(rows, FUZZ_VALUE(t[0].sum() * static_cast<double>(at::nonzero(t[0].detach() > 0).size(0))));
  f.add(rows, FUZZ_VALUE(t[0].cumsum(0).slice(0, 0, n[0] % 4 + 1)));
  f.add(rows, FUZZ_EFFECT(t[0].slice(0, 0, n[0] / 2).zero_()));
  f.add(rows, FUZZ_EFFECT(t[0].select(0, n[0] % 3).fill_(n[0])));
  f.add(rate, FUZZ_VALUE(t[0] * s[0]));
  f.add(rate, FUZZ_VALUE(t[0] * (1 - static_cast<double>(s[0]))));
  f.add(rate, FUZZ_VALUE(at::add(t[0], at::sin(t[0]), s[0])));
  f.add(rate, FUZZ_VALUE(at::leaky_relu(t[0], s[0])));
  f.add(rate, FUZZ_VALUE(at::clamp_max(t[0], s[0])));
  f.add(rate, FUZZ_VALUE(at::full_like(t[0], s[0])));
  f.add(rate, FUZZ_VALUE(at::dropout(t[0], s[0], true)));
  f.add(rate, FUZZ_VALUE(static_cast<double>(s[0]) > 0.5 ? t[0] * s[0] : t[0] + 1));
  f.add(rate, FUZZ_EFFECT(t[0].mul_(s[0])));
  return f;
}

}  // namespace ahead::fuzz
