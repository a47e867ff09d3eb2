// SPDX-License-Identifier: BSD-3-Clause
// The picture of a validation: target and prediction of one training sample.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "braid/train/maps.h"
#include "train/trainer_impl.h"

namespace braid::train {

// All of it, on all ranks: the first one draws.
at::Tensor Trainer::Impl::picture_output() {
  const at::NoGradGuard no_grad;
  at::Tensor output = parts.forward(model, picture_batch->input.narrow(0, 0, 1), {});
  if (output.defined()) output = model.whole_output(output).to(c10::kFloat).contiguous();
  if (parts.staged == nullptr) return output;
  if (!output.defined())
    output = at::empty(picture_batch->target.narrow(0, 0, 1).sizes(),
                       picture_batch->target.options().dtype(c10::kFloat));
  parts.staged->axis().broadcast(output, parts.staged->output_rank()).wait();
  return output;
}

bool Trainer::Impl::draws_pictures() const {
  const data::SampleSpec& spec = data.train->spec();
  return options.report.pictures && spec.target.shape.size() == 3 &&
         options.train.loss != nn::Loss::cross_entropy &&
         is_forecast(spec.input.shape, spec.target.shape);
}

data::FieldInfo Trainer::Impl::picture_fields() const {
  data::FieldInfo info = data.train->fields();
  info.names = channel_names(options.data, info.names, data.train->spec().target.shape[0]);
  return info;
}

void Trainer::Impl::check_picture() const {
  if (draws_pictures())
    channel_called("report.channel =", options.report.channel, picture_fields().names);
}

void Trainer::Impl::draw_picture() {
  if (!draws_pictures() || !picture_batch) return;
  const at::Tensor output = picture_output();
  const data::FieldInfo info = picture_fields();
  const data::Scaling scaling = data.train->scaling();
  const int64_t channel = channel_called("report.channel =", options.report.channel, info.names);
  PictureRecord picture = maps_of(info, channel,
                                  {{"target", physical(picture_batch->target[0], scaling)},
                                   {"prediction", physical(output[0], scaling)}});
  picture.tag = "Visualization, " + info.names[static_cast<size_t>(channel)];
  picture.step = step;
  sink.picture(picture);
}

}  // namespace braid::train
