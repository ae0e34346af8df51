#include "ops/families.h"

// Complex numbers, fast Fourier transforms.
namespace ahead::samples::complex_samples {
namespace {

std::vector<Inputs> complex_inputs() {
  return {{c64(2, 3)},           {c128(2, 3)},           {c64(2, 3).transposed()},
          {c64(2, 3).strided()}, {c64(2, 3).expanded()}, {c64()},
          {c64(0, 2)},           {c64(7).specials()}};
}

void add_parts(SampleTable& table) {
  table.op("aten.real")
      .over(complex_inputs(), at::real)
      .sample("of a real tensor", {f32(3)}, at::real);
  table.op("aten.imag").over(complex_inputs(), at::imag);
  table.op("aten.view_as_real")
      .over(complex_inputs(), at::view_as_real)
      .over(
          complex_inputs(), [](auto& x) { return at::view_as_real(x * 2) + 1; },
          "of an intermediate");
  table.op("aten.view_as_complex")
      .over({{f32(3, 2)}, {f64(3, 2)}, {f32(2, 3, 2)}, {f32(0, 2)}}, at::view_as_complex)
      .over(
          {{f32(3, 2)}}, [](auto& x) { return at::view_as_complex(x * 2) * 2; },
          "of an intermediate");
  table.op("aten.view_as_real_copy").over(complex_inputs(), at::view_as_real_copy);
  table.op("aten.view_as_complex_copy")
      .not_differentiable()
      .over({{f32(3, 2)}, {f64(3, 2)}, {f32(0, 2)}}, at::view_as_complex_copy);
  table.op("aten.conj")
      .over(complex_inputs(), at::conj)
      .sample("of a real tensor", {f32(3)}, at::conj)
      .over(
          complex_inputs(), [](auto& x) { return at::conj(x) * 2; }, "used")
      .over(
          complex_inputs(), [](auto& x) { return at::conj(x * 2); }, "of an intermediate")
      .over(
          complex_inputs(), [](auto& x) { return at::conj(at::conj(x)); }, "twice");
  table.op("aten.resolve_conj")
      .over(complex_inputs(), at::resolve_conj)
      .over(
          complex_inputs(), [](auto& x) { return at::resolve_conj(at::conj(x)); },
          "of a conjugate");
  table.op("aten.resolve_neg")
      .over(complex_inputs(), at::resolve_neg)
      .over(
          complex_inputs(), [](auto& x) { return at::resolve_neg(at::imag(at::conj(x))); },
          "of a negated part");
  table.op("aten._conj_physical").over(complex_inputs(), at::_conj_physical);
  table.op("aten._neg_view").over({{f32(2, 3)}, {f64(2, 3).transposed()}, {c64(3)}}, [](auto& x) {
    return at::_neg_view(x) * 2;
  });
  table.op("aten.complex")
      .over(binary_inputs(full_floating, Domain::Any, Mixing::None), at::complex);
  table.op("aten.polar").over(binary_inputs(full_floating, Domain::Any, Mixing::None), at::polar);
  table.op("program.complex")
      .sample("write to the real part", {c64(3)},
              [](auto& x) {
                const at::Tensor y = x * 1;
                at::real(y).mul_(2);
                return y;
              })
      .sample("write to an argument's imaginary part", {c64(3)},
              [](auto& x) { at::imag(x).mul_(2); })
      .sample("product with a conjugate", {c64(2, 3), c64(2, 3)},
              [](auto& x, auto& y) { return x.matmul(y.mH()); });
}

void add_transforms(SampleTable& table) {
  const std::vector<Inputs> reals = {
      {f32(4, 6)}, {f64(4, 6)}, {f32(4, 6).transposed()}, {i64(4, 6)}, {f32(4, 6).strided()}};
  const std::vector<Inputs> complexes = {
      {c64(4, 6)}, {c128(4, 6)}, {c64(4, 6).transposed()}, {c64(4, 6).strided()}};
  std::vector<Inputs> both = reals;
  both.insert(both.end(), complexes.begin(), complexes.end());
  table.op("aten.fft_fft")
      .over(both, [](auto& x) { return at::fft_fft(x); })
      .over(
          both, [](auto& x) { return at::fft_fft(x, 5, 0, "ortho"); }, "padded, ortho");
  table.op("aten.fft_ifft")
      .over(both, [](auto& x) { return at::fft_ifft(x); })
      .over(
          both, [](auto& x) { return at::fft_ifft(x, 3, 0, "forward"); }, "cut");
  table.op("aten.fft_rfft")
      .over(reals, [](auto& x) { return at::fft_rfft(x); })
      .over(
          reals, [](auto& x) { return at::fft_rfft(x, 7, 0, "ortho"); }, "odd");
  table.op("aten.fft_irfft")
      .over(complexes, [](auto& x) { return at::fft_irfft(x); })
      .over(
          complexes, [](auto& x) { return at::fft_irfft(x, 9, 1); }, "odd");
  table.op("aten.fft_hfft").over(complexes, [](auto& x) { return at::fft_hfft(x); });
  table.op("aten.fft_ihfft").over(reals, [](auto& x) { return at::fft_ihfft(x); });
  table.op("aten.fft_fft2").over(both, [](auto& x) { return at::fft_fft2(x); });
  table.op("aten.fft_ifft2").over(both, [](auto& x) { return at::fft_ifft2(x); });
  table.op("aten.fft_rfft2").over(reals, [](auto& x) { return at::fft_rfft2(x); });
  table.op("aten.fft_irfft2").over(complexes, [](auto& x) { return at::fft_irfft2(x); });
  table.op("aten.fft_fftn")
      .over(both, [](auto& x) { return at::fft_fftn(x); })
      .over(
          both, [](auto& x) { return at::fft_fftn(x, at::IntArrayRef({3}), at::IntArrayRef({0})); },
          "one");
  table.op("aten.fft_ifftn").over(both, [](auto& x) { return at::fft_ifftn(x); });
  table.op("aten.fft_rfftn").over(reals, [](auto& x) { return at::fft_rfftn(x); });
  table.op("aten.fft_irfftn").over(complexes, [](auto& x) { return at::fft_irfftn(x); });
  table.op("aten.fft_fftshift").over(both, [](auto& x) { return at::fft_fftshift(x); });
  table.op("aten.fft_ifftshift").over(both, [](auto& x) {
    return at::fft_ifftshift(x, at::IntArrayRef({1}));
  });
  table.op("aten.fft_fftfreq")
      .sample("plain", {f32(5)}, [](auto& x) { return x * at::fft_fftfreq(5); })
      .sample("step", {f64(4)}, [](auto& x) { return x * at::fft_fftfreq(4, 0.5, at::kDouble); })
      .sample("one", {f32(1)}, [](auto& x) { return x + at::fft_fftfreq(1); });
  table.op("aten.fft_rfftfreq")
      .sample("plain", {f32(3)}, [](auto& x) { return x * at::fft_rfftfreq(5); })
      .sample("step", {f64(3)}, [](auto& x) { return x * at::fft_rfftfreq(4, 0.5, at::kDouble); })
      .sample("one", {f32(1)}, [](auto& x) { return x + at::fft_rfftfreq(1); });
  table.op("aten.stft")
      .sample("plain", {f32(16), f32(4).no_grad()},
              [](auto& x, auto& w) { return at::stft(x, 4, 2, 4, w, false, true, true); })
      .sample("two-sided", {f64(2, 16), f64(4).no_grad()},
              [](auto& x, auto& w) { return at::stft(x, 4, 2, 4, w, true, false, true); })
      .sample("complex", {c64(16)},
              [](auto& x) { return at::stft(x, 4, 2, 4, {}, false, false, true); });
}

}  // namespace

void add(SampleTable& table) {
  add_parts(table);
  add_transforms(table);
}

}  // namespace ahead::samples::complex_samples
