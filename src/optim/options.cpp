// SPDX-License-Identifier: BSD-3-Clause
// The described options of this module, in one place.
#include "braid/core/options.h"

#include "braid/optim/optimizer.h"
#include "braid/optim/scaler.h"
#include "braid/optim/schedule.h"

namespace braid::optim {

void describe(Fields& fields, OptimizerOptions& o) {
  fields.choice("name", o.name, {"sgd", "adam", "adamw"}, "update rule");
  fields.field("lr", o.lr, "learning rate before schedule and scaling", {.above = 0});
  fields.field("betas", o.betas, "Adam: decay of the first and second moment");
  fields.field("eps", o.eps, "Adam: added to the root of the second moment", {.at_least = 0});
  fields.field("weight_decay", o.weight_decay,
               "sgd, adam: added to the gradient (L2); adamw: taken off the weight",
               {.at_least = 0});
  fields.field("momentum", o.momentum, "SGD", {.at_least = 0, .at_most = 1});
  fields.field("nesterov", o.nesterov, "SGD: look ahead by one momentum step");
  fields.field("decay_matrices_only", o.decay_matrices_only,
               "no weight decay on tensors of fewer than two dimensions (biases, norms)");
}

void describe(Fields& fields, ScalerOptions& o) {
  fields.field("initial", o.initial, "first loss scale", {.above = 0});
  fields.field("growth", o.growth, "factor after `interval` clean steps", {.at_least = 1});
  fields.field("backoff", o.backoff, "factor after an overflow", {.above = 0, .at_most = 1});
  fields.field("interval", o.interval, "clean steps before the scale grows", {.at_least = 1});
}

void describe(Fields& fields, ScheduleOptions& o) {
  fields.choice("schedule", o.schedule, {"constant", "cosine", "linear", "exponential"},
                "how the learning rate moves");
  fields.field("warmup", o.warmup, "steps over which the learning rate rises to its full value",
               {.at_least = 0});
  fields.choice("warmup_kind", o.warmup_kind, {"before", "under"},
                "before: the schedule starts after the warm-up; under: the lower of both");
  fields.field("final_lr", o.final_lr, "where cosine and linear end", {.at_least = 0});
  fields.field("gamma", o.gamma, "exponential: factor an epoch", {.above = 0});
  fields.choice("scale_lr", o.scale_lr, {"none", "linear", "sqrt"},
                "multiply lr by global_batch / base_batch, or by its square root");
  fields.field("base_batch", o.base_batch, "global batch at which lr holds (with scale_lr)",
               {.at_least = 0});
}

}  // namespace braid::optim
