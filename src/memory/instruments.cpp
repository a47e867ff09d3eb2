// SPDX-License-Identifier: BSD-3-Clause
#include "braid/memory/instruments.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "memory/dry_cuda.h"
#include "memory/dry_storage.h"
#include "memory/real_blocks.h"
#include "memory/recorder.h"
#include "memory/saved.h"

namespace braid::memory {

struct Instruments::State {
  explicit State(const InstrumentOptions& options)
      : observe(c10::DebugInfoKind::TEST_INFO, std::make_shared<Recorder>(options)),
        interpose(c10::DispatchKey::Fake),
        pretend(options.dry ? std::make_unique<PretendCuda>() : nullptr) {}

  c10::DebugInfoGuard observe;
  c10::impl::IncludeDispatchKeyGuard interpose;
  std::unique_ptr<PretendCuda> pretend;
};

Instruments::Instruments(InstrumentOptions options) {
  if (options.ledger != nullptr) {
    watch_real_memory();
    watch_saved_variables();
  }
  watch_meta_memory();
  state_ = std::make_unique<State>(options);
}

Instruments::~Instruments() = default;

}  // namespace braid::memory
