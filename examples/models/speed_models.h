#pragma once

#include <string>
#include <vector>

#include "models/models.h"

namespace models {

/// How large a model is: as it is measured, or small enough for a test.
enum class SpeedSize { Measured, Small };

/// The models whose speed is compared with that of other compilers, by name: mlp, gpt12, resnet8,
/// lstm, norm_chain, attention, unet, vit, vae, pinn, tiny.
const std::vector<std::string>& speed_models();

/// One of them, ready to train. bench/models/models.py has the same ones in Python, which take the
/// parameters in the same order.
Workload speed_workload(const std::string& name, SpeedSize size = SpeedSize::Measured);

}  // namespace models
