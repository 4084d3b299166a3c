#include "common/job/job_defaults.h"

#include <filesystem>

#include "absl/time/time.h"
#include "common/job/own_program.h"

namespace parley {
namespace {

// `field` of `message`, if it is not set.
#define PARLEY_DEFAULT(message, field, value) \
  if (!(message).has_##field()) (message).set_##field(value)

void AdamDefaults(Adam& adam, double weight_decay) {
  PARLEY_DEFAULT(adam, beta1, 0.9);
  PARLEY_DEFAULT(adam, beta2, 0.999);
  PARLEY_DEFAULT(adam, epsilon, 1e-8);
  PARLEY_DEFAULT(adam, weight_decay, weight_decay);
  PARLEY_DEFAULT(adam, amsgrad, false);
}

void OptimizerDefaults(Optimizer& optimizer) {
  switch (optimizer.kind_case()) {
    case Optimizer::kSgd: {
      Sgd& sgd = *optimizer.mutable_sgd();
      PARLEY_DEFAULT(sgd, momentum, 0);
      PARLEY_DEFAULT(sgd, dampening, 0);
      PARLEY_DEFAULT(sgd, weight_decay, 0);
      PARLEY_DEFAULT(sgd, nesterov, false);
      break;
    }
    case Optimizer::kAdam:
      AdamDefaults(*optimizer.mutable_adam(), 0);
      break;
    case Optimizer::kAdamw:
      AdamDefaults(*optimizer.mutable_adamw(), 0.01);
      break;
    case Optimizer::kAdagrad: {
      Adagrad& adagrad = *optimizer.mutable_adagrad();
      PARLEY_DEFAULT(adagrad, rate_decay, 0);
      PARLEY_DEFAULT(adagrad, weight_decay, 0);
      PARLEY_DEFAULT(adagrad, initial_accumulator, 0);
      PARLEY_DEFAULT(adagrad, epsilon, 1e-10);
      break;
    }
    case Optimizer::kRmsprop: {
      RmsProp& rmsprop = *optimizer.mutable_rmsprop();
      PARLEY_DEFAULT(rmsprop, alpha, 0.99);
      PARLEY_DEFAULT(rmsprop, epsilon, 1e-8);
      PARLEY_DEFAULT(rmsprop, weight_decay, 0);
      PARLEY_DEFAULT(rmsprop, momentum, 0);
      PARLEY_DEFAULT(rmsprop, centered, false);
      break;
    }
    case Optimizer::KIND_NOT_SET:
      break;
  }
  PARLEY_DEFAULT(optimizer, clip_norm, 0);
  PARLEY_DEFAULT(optimizer, skip_nonfinite, false);
  for (OptimizerOverride& override : *optimizer.mutable_overrides()) {
    PARLEY_DEFAULT(override, rate_factor, 1);
    PARLEY_DEFAULT(override, frozen_until_step, 0);
    PARLEY_DEFAULT(override, frozen_epochs, 0);
  }
}

google::protobuf::RepeatedField<float> Three(float red, float green, float blue) {
  google::protobuf::RepeatedField<float> three;
  for (const float value : {red, green, blue}) three.Add(value);
  return three;
}

void DataDefaults(Data& data) {
  if (data.has_idx()) {
    PARLEY_DEFAULT(*data.mutable_idx(), mean, 0);
    PARLEY_DEFAULT(*data.mutable_idx(), deviation, 1);
  }
  if (data.has_cifar10()) {
    Cifar10& cifar10 = *data.mutable_cifar10();
    if (cifar10.mean().empty()) *cifar10.mutable_mean() = Three(0, 0, 0);
    if (cifar10.deviation().empty()) *cifar10.mutable_deviation() = Three(1, 1, 1);
    PARLEY_DEFAULT(cifar10, padding, 0);
    PARLEY_DEFAULT(cifar10, flip, 0);
  }
  if (data.has_image_folders()) {
    ImageFolders& images = *data.mutable_image_folders();
    PARLEY_DEFAULT(images, side, 224);
    PARLEY_DEFAULT(images, least_area, 0.08);
    PARLEY_DEFAULT(images, flip, 0.5);
    PARLEY_DEFAULT(images, evaluation_share, 0.875);
    PARLEY_DEFAULT(images, threads, 2);
    // ImageNet's.
    if (images.mean().empty()) *images.mutable_mean() = Three(0.485F, 0.456F, 0.406F);
    if (images.deviation().empty()) *images.mutable_deviation() = Three(0.229F, 0.224F, 0.225F);
  }
  if (data.has_text()) {
    Text& text = *data.mutable_text();
    PARLEY_DEFAULT(text, test_share, 0);
    if (text.tokens() == TOKENS_UNSPECIFIED) text.set_tokens(BYTES);
    PARLEY_DEFAULT(text, vocabulary, 0);
    PARLEY_DEFAULT(text, length, 35);
    PARLEY_DEFAULT(text, columns, 20);
  }
  PARLEY_DEFAULT(data, evaluation_batch, 500);
  PARLEY_DEFAULT(data, shuffle, true);
  PARLEY_DEFAULT(data, prefetch, 2);
}

void LearningRateDefaults(LearningRate& rate) {
  if (rate.kind_case() == LearningRate::KIND_NOT_SET) rate.mutable_constant();
  if (rate.has_cosine()) PARLEY_DEFAULT(*rate.mutable_cosine(), minimum, 0);
  PARLEY_DEFAULT(rate, warmup_steps, 0);
  PARLEY_DEFAULT(rate, warmup_epochs, 0);
  PARLEY_DEFAULT(rate, linear_scaling, false);
  PARLEY_DEFAULT(rate, elastic, false);
}

void TransformerDefaults(Transformer& transformer) {
  PARLEY_DEFAULT(transformer, width, 256);
  PARLEY_DEFAULT(transformer, heads, 4);
  PARLEY_DEFAULT(transformer, hidden, transformer.width());
  PARLEY_DEFAULT(transformer, layers, 4);
  PARLEY_DEFAULT(transformer, dropout, 0.2);
  PARLEY_DEFAULT(transformer, tied, false);
  PARLEY_DEFAULT(transformer, skips, false);
}

void PipelineDefaults(Pipeline& pipeline) {
  if (pipeline.schedule() == PIPELINE_SCHEDULE_UNSPECIFIED) pipeline.set_schedule(ONE_F_ONE_B);
  PARLEY_DEFAULT(pipeline, parts_per_stage, pipeline.schedule() == INTERLEAVED ? 2 : 1);
  PARLEY_DEFAULT(pipeline, recompute, false);
  PARLEY_DEFAULT(pipeline, peer_copies, true);
}

// waits: a pipeline or node group that has lost a process waits for another one.
void ConsistencyDefaults(Consistency& consistency, bool waits) {
  if (consistency.kind_case() == Consistency::KIND_NOT_SET) consistency.mutable_sync();
  if (consistency.has_bounded() && consistency.bounded().reduction() == REDUCTION_UNSPECIFIED) {
    consistency.mutable_bounded()->set_reduction(MEAN);
  }
  if (consistency.has_async()) {
    Async& async = *consistency.mutable_async();
    if (async.reduction() == REDUCTION_UNSPECIFIED) async.set_reduction(MEAN);
    PARLEY_DEFAULT(async, divide_rate_by_staleness, false);
    PARLEY_DEFAULT(async, delay_compensation, 0);
  }
  if (!consistency.has_sync()) return;
  Sync& sync = *consistency.mutable_sync();
  PARLEY_DEFAULT(sync, deterministic, false);
  PARLEY_DEFAULT(sync, backup, 0);
  PARLEY_DEFAULT(sync, update_ahead, false);
  if (sync.reduction() == REDUCTION_UNSPECIFIED) sync.set_reduction(MEAN);
  if (sync.buffers() == BUFFER_REDUCTION_UNSPECIFIED) sync.set_buffers(LOWEST_ORDINAL);
  // Other sums than those of all workers would be other bits.
  if (sync.lost_worker() == LOST_WORKER_UNSPECIFIED) {
    sync.set_lost_worker(sync.deterministic() || waits ? WAIT : GO_ON);
  }
}

void ClusterDefaults(Cluster& cluster) {
  PARLEY_DEFAULT(cluster, workers, 1);
  PARLEY_DEFAULT(cluster, shards, 1);
  PARLEY_DEFAULT(cluster, stages, 0);
  PARLEY_DEFAULT(cluster, group, 1);
  PARLEY_DEFAULT(cluster, min_workers, cluster.workers());
}

void Resolve(std::string& path, const std::string& folder) {
  if (path.empty()) return;
  path = (std::filesystem::path(folder) / path).lexically_normal().string();
}

}  // namespace

void FillInDefaults(JobConfig& job) {
  PARLEY_DEFAULT(job, seed, 0);
  if (job.model().has_simple_cnn()) {
    PARLEY_DEFAULT(*job.mutable_model()->mutable_simple_cnn(), classes, 10);
  }
  if (job.model().has_resnet()) {
    PARLEY_DEFAULT(*job.mutable_model()->mutable_resnet(), classes, 10);
  }
  if (job.model().has_vgg19()) {
    PARLEY_DEFAULT(*job.mutable_model()->mutable_vgg19(), classes, 10);
  }
  if (job.model().has_xresnet50()) {
    PARLEY_DEFAULT(*job.mutable_model()->mutable_xresnet50(), classes, 10);
  }
  if (job.model().has_transformer()) {
    TransformerDefaults(*job.mutable_model()->mutable_transformer());
  }
  DataDefaults(*job.mutable_data());
  if (job.loss() == LOSS_UNSPECIFIED) job.set_loss(CROSS_ENTROPY);
  if (job.precision() == PRECISION_UNSPECIFIED) job.set_precision(FLOAT32);
  if (job.precision() == FLOAT16_AUTOCAST) {
    PARLEY_DEFAULT(*job.mutable_optimizer(), skip_nonfinite, true);
    PARLEY_DEFAULT(*job.mutable_loss_scale(), initial, 65536);
    PARLEY_DEFAULT(*job.mutable_loss_scale(), growth_interval, 2000);
  }
  OptimizerDefaults(*job.mutable_optimizer());
  LearningRateDefaults(*job.mutable_learning_rate());
  ClusterDefaults(*job.mutable_cluster());
  const bool pipelines = job.cluster().stages() != 0;
  const bool groups = job.cluster().group() > 1;
  if (job.cluster().group_reduction() == GROUP_REDUCTION_UNSPECIFIED) {
    const bool on_gpus = groups && job.device() == CUDA && !NeedsOwnProgram(job);
    job.mutable_cluster()->set_group_reduction(on_gpus ? ON_GPUS : ON_HOST);
  }
  ConsistencyDefaults(*job.mutable_consistency(), pipelines || groups);
  if (pipelines) PipelineDefaults(*job.mutable_pipeline());
  if (job.checkpoint().directory().empty()) job.mutable_checkpoint()->set_directory("checkpoints");
  PARLEY_DEFAULT(*job.mutable_checkpoint(), at_end, true);
  PARLEY_DEFAULT(*job.mutable_checkpoint(), every_steps, 0);
  PARLEY_DEFAULT(*job.mutable_checkpoint(), keep_last, 5);
  PARLEY_DEFAULT(*job.mutable_checkpoint(), keep_every_steps, 0);
  PARLEY_DEFAULT(*job.mutable_checkpoint(), ignore_unexpected, false);
  PARLEY_DEFAULT(*job.mutable_checkpoint(), use_previous_if_damaged, false);
  PARLEY_DEFAULT(job, threads, 0);
  PARLEY_DEFAULT(job, accumulate, 1);
  PARLEY_DEFAULT(job, bucket_kib, 4096);
  PARLEY_DEFAULT(job, cuda_graphs, false);
  if (job.device() == DEVICE_UNSPECIFIED) job.set_device(CPU);
  if (job.tls() == Tls::MODE_UNSPECIFIED) job.set_tls(Tls::AUTO);
  if (job.gradients_on_wire() == GRADIENTS_ON_WIRE_UNSPECIFIED) {
    job.set_gradients_on_wire(AS_COMPUTED);
  }
  PARLEY_DEFAULT(job, liveness, "10s");
  PARLEY_DEFAULT(job, stall_timeout, "10m");
  absl::Duration liveness;
  if (absl::ParseDuration(job.liveness(), &liveness)) {
    PARLEY_DEFAULT(job, autonomy, absl::FormatDuration(6 * liveness));
  }
  PARLEY_DEFAULT(job, max_restarts, 0);
  PARLEY_DEFAULT(job, preemption_grace, "25s");
}

#undef PARLEY_DEFAULT

void ResolvePaths(JobConfig& job, const std::string& folder) {
  if (job.model().has_torchscript()) {
    Resolve(*job.mutable_model()->mutable_torchscript(), folder);
  }
  Data& data = *job.mutable_data();
  if (data.has_idx()) Resolve(*data.mutable_idx()->mutable_directory(), folder);
  if (data.has_cifar10()) Resolve(*data.mutable_cifar10()->mutable_directory(), folder);
  if (data.has_image_folders()) {
    Resolve(*data.mutable_image_folders()->mutable_directory(), folder);
  }
  if (data.has_text()) {
    Resolve(*data.mutable_text()->mutable_train(), folder);
    Resolve(*data.mutable_text()->mutable_test(), folder);
  }
  if (data.has_safetensors()) {
    Resolve(*data.mutable_safetensors()->mutable_train(), folder);
    Resolve(*data.mutable_safetensors()->mutable_test(), folder);
  }
  Resolve(*job.mutable_checkpoint()->mutable_start_from(), folder);
}

}  // namespace parley
