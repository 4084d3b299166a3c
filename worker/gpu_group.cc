#include "worker/gpu_group.h"

#include "absl/strings/str_cat.h"
#include "worker/device/group_id.h"

namespace parley {

GpuGroup::Join JoinByPlugin(const DevicePlugin& plugin, ComputeDevice& device) {
  return [&plugin, &device](const Reducer::Group& group, const std::function<bool()>& cancelled,
                            absl::Time deadline) -> absl::StatusOr<std::unique_ptr<DeviceGroup>> {
    GroupIdExchange exchange;
    exchange.name = absl::StrCat("parley-gpus ", group.members.front().address(), " ",
                                 group.job_epoch, ".", group.contributor, ".", group.composition);
    exchange.rank = group.rank;
    exchange.ranks = static_cast<uint32_t>(group.members.size());
    exchange.make_id = plugin.make_group_id;
    exchange.cancelled = cancelled;
    const auto id = ExchangeGroupId(exchange, deadline);
    if (!id.ok()) return id.status();
    DeviceGroup::Options options;
    options.id = *id;
    options.epoch = group.composition;
    options.rank = exchange.rank;
    options.ranks = exchange.ranks;
    options.cancelled = cancelled;
    return plugin.join_group(device, options, deadline);
  };
}

}  // namespace parley
