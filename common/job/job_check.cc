#include "common/job/job_check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/job/consistency.h"
#include "common/job/contributor_places.h"
#include "common/job/slurm_check.h"

namespace parley {
namespace {

constexpr uint32_t kMostRestarts = 1'000'000;
constexpr uint32_t kMostThreads = 1024;
constexpr uint32_t kMostPrefetched = 1024;
constexpr uint32_t kMostSamples = 1 << 24;     // of one forward
constexpr uint32_t kMostBucketKib = 32 << 10;  // half of what may be on its way to a shard

// Comparisons are written so that a NaN fails them.
bool IsPositive(double value) { return value > 0 && std::isfinite(value); }
bool IsNotNegative(double value) { return value >= 0 && std::isfinite(value); }
bool IsBelowOne(double value) { return value >= 0 && value < 1; }

class Checker {
 public:
  explicit Checker(const JobSource& source) : source_(source), job_(source.job()) {}

  absl::Status Run() {
    Name();
    ModelIsGiven();
    DataIsGiven();
    OptimizerIsGiven();
    LearningRates();
    Consistencies();
    Members();
    Length();
    StartIsRight();
    Computing();
    Checkpoints();
    Files();
    Times();
    return first_;
  }

 private:
  void Require(bool right, std::string_view field, std::string_view problem) {
    if (!right && first_.ok()) first_ = source_.Error(field, problem);
  }
  void Positive(double value, std::string_view field) {
    Require(IsPositive(value), field, "must be a number above 0");
  }
  void NotNegative(double value, std::string_view field) {
    Require(IsNotNegative(value), field, "must be a number of at least 0");
  }
  void BelowOne(double value, std::string_view field) {
    Require(IsBelowOne(value), field, "must be at least 0 and below 1");
  }
  void Between(uint32_t least, uint32_t value, uint32_t most, std::string_view field) {
    Require(value >= least && value <= most, field,
            absl::StrCat("must be at least ", least, " and at most ", most, ", not ", value));
  }

  void Name() {
    bool right = !job_.name().empty() && job_.name().size() <= 64;
    for (const char c : job_.name()) {
      right = right && (absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.');
    }
    Require(!job_.name().empty(), "name", "is missing; give the job a name, such as \"mnist-1\"");
    Require(right, "name", "must be 1 to 64 letters, digits, '-', '_' or '.'");
  }

  void ModelIsGiven() {
    Require(job_.model().kind_case() != Model::KIND_NOT_SET, "model",
            "is missing; give one, such as model { simple_cnn {} } or "
            "model { torchscript: \"FILE\" }");
    if (job_.model().has_simple_cnn()) {
      Between(1, job_.model().simple_cnn().classes(), 1 << 20, "model.simple_cnn.classes");
    }
    if (job_.model().has_resnet()) {
      const ResNet& resnet = job_.model().resnet();
      Require(resnet.depth() == 18 || resnet.depth() == 34 || resnet.depth() == 50,
              "model.resnet.depth", absl::StrCat("must be 18, 34 or 50, not ", resnet.depth()));
      Between(1, resnet.classes(), 1 << 20, "model.resnet.classes");
    }
    if (job_.model().has_vgg19()) {
      Between(1, job_.model().vgg19().classes(), 1 << 20, "model.vgg19.classes");
    }
    if (job_.model().has_xresnet50()) {
      Between(1, job_.model().xresnet50().classes(), 1 << 20, "model.xresnet50.classes");
    }
    if (job_.model().has_transformer()) TransformerIsRight(job_.model().transformer());
    if (job_.model().has_sleeping()) SleepingIsRight(job_.model().sleeping());
    if (job_.model().has_torchscript()) {
      Require(!job_.model().torchscript().empty(), "model.torchscript", "must name a file");
    }
  }

  void SleepingIsRight(const Sleeping& sleeping) {
    Between(1, sleeping.layers(), 1 << 10, "model.sleeping.layers");
    for (const double seconds : {sleeping.forward_seconds(), sleeping.input_gradient_seconds(),
                                 sleeping.weight_gradient_seconds()}) {
      Require(seconds >= 0 && seconds <= 60, "model.sleeping",
              absl::StrCat("sleeps 0 to 60 seconds, not ", seconds));
    }
  }

  void TransformerIsRight(const Transformer& transformer) {
    Between(1, transformer.width(), 1 << 16, "model.transformer.width");
    Between(1, transformer.heads(), 1 << 16, "model.transformer.heads");
    Require(
        transformer.heads() == 0 || transformer.width() % transformer.heads() == 0,
        "model.transformer.heads",
        absl::StrCat("must divide width, ", transformer.width(), ", not ", transformer.heads()));
    Require(transformer.width() % 2 == 0, "model.transformer.width",
            "must be even: half of it are sines, half cosines");
    Between(1, transformer.hidden(), 1 << 18, "model.transformer.hidden");
    Between(1, transformer.layers(), 1 << 10, "model.transformer.layers");
    BelowOne(transformer.dropout(), "model.transformer.dropout");
    Require(job_.data().has_text(), "model.transformer",
            "predicts the tokens of a text: data must be text");
  }

  void TextIsRight(const Text& text) {
    Require(!text.train().empty(), "data.text.train", "must name a file");
    BelowOne(text.test_share(), "data.text.test_share");
    Require(text.test().empty() || text.test_share() == 0, "data.text.test_share",
            "is of the file `train`, but the file `test` is given too: one of the two must be left "
            "out");
    Require(text.tokens() == BYTES || text.tokens() == WORDS, "data.text.tokens",
            "must be BYTES or WORDS");
    Require(text.vocabulary() == 0 || text.tokens() == WORDS, "data.text.vocabulary",
            "is of WORDS: with BYTES it must be 0 or left out");
    Require(text.vocabulary() != 1 && text.vocabulary() <= 1 << 24, "data.text.vocabulary",
            "must be 0 or from 2 to 16777216");
    Between(1, text.length(), 1 << 20, "data.text.length");
    Between(1, text.columns(), kMostSamples, "data.text.columns");
  }

  void DataIsGiven() {
    const Data& data = job_.data();
    Require(data.kind_case() != Data::KIND_NOT_SET, "data",
            "is missing; give one of idx, cifar10, image_folders, text and safetensors, such as "
            "data { idx { directory: \"/usr/share/datasets/fashion-mnist\" } batch: 100 }");
    if (data.has_idx()) {
      Require(!data.idx().directory().empty(), "data.idx.directory", "must name a folder");
      Require(std::isfinite(data.idx().mean()), "data.idx.mean", "must be a finite number");
      Positive(data.idx().deviation(), "data.idx.deviation");
    }
    if (data.has_cifar10()) {
      Require(!data.cifar10().directory().empty(), "data.cifar10.directory", "must name a folder");
    }
    if (data.has_image_folders()) ImageFoldersAreRight(data.image_folders());
    if (data.has_text()) TextIsRight(data.text());
    if (data.has_safetensors()) {
      Require(!data.safetensors().train().empty(), "data.safetensors.train", "must name a file");
    }
    Between(1, data.batch(), kMostSamples, "data.batch");
    Between(1, data.evaluation_batch(), kMostSamples, "data.evaluation_batch");
    Between(0, data.prefetch(), kMostPrefetched, "data.prefetch");
    Require(job_.loss() == CROSS_ENTROPY || job_.loss() == MEAN_SQUARED_ERROR, "loss",
            "must be CROSS_ENTROPY or MEAN_SQUARED_ERROR");
    Require(job_.loss() != MEAN_SQUARED_ERROR || !HasClasses(data), "loss",
            absl::StrCat("MEAN_SQUARED_ERROR needs targets like the network's outputs, but the "
                         "labels of data.",
                         data.has_idx()       ? "idx"
                         : data.has_cifar10() ? "cifar10"
                         : data.has_text()    ? "text"
                                              : "image_folders",
                         " are class numbers: must be CROSS_ENTROPY or left out"));
  }

  static bool HasClasses(const Data& data) {
    return data.has_idx() || data.has_cifar10() || data.has_image_folders() || data.has_text();
  }

  void ImageFoldersAreRight(const ImageFolders& images) {
    Require(!images.directory().empty(), "data.image_folders.directory", "must name a folder");
    Between(1, images.side(), 1 << 14, "data.image_folders.side");
    Share(images.least_area(), "data.image_folders.least_area");
    Require(images.flip() >= 0 && images.flip() <= 1, "data.image_folders.flip",
            "must be a number from 0 to 1");
    Share(images.evaluation_share(), "data.image_folders.evaluation_share");
    Require(images.mean_size() == 3 && images.deviation_size() == 3, "data.image_folders.mean",
            "and deviation must each be given three times: for red, green and blue");
    for (const float mean : images.mean()) {
      Require(std::isfinite(mean), "data.image_folders.mean", "must be finite numbers");
    }
    for (const float deviation : images.deviation()) {
      Positive(deviation, "data.image_folders.deviation");
    }
    Between(1, images.threads(), 1024, "data.image_folders.threads");
  }

  // Of something, more than nothing.
  void Share(double value, std::string_view field) {
    Require(value > 0 && value <= 1, field, "must be above 0 and at most 1");
  }

  void AdamIsRight(const Adam& adam, const std::string& path) {
    Positive(adam.rate(), path + ".rate");
    BelowOne(adam.beta1(), path + ".beta1");
    BelowOne(adam.beta2(), path + ".beta2");
    NotNegative(adam.epsilon(), path + ".epsilon");
    NotNegative(adam.weight_decay(), path + ".weight_decay");
  }

  void KindIsRight(const Optimizer& optimizer) {
    switch (optimizer.kind_case()) {
      case Optimizer::kSgd: {
        const Sgd& sgd = optimizer.sgd();
        Positive(sgd.rate(), "optimizer.sgd.rate");
        NotNegative(sgd.momentum(), "optimizer.sgd.momentum");
        Require(std::isfinite(sgd.dampening()), "optimizer.sgd.dampening",
                "must be a finite number");
        NotNegative(sgd.weight_decay(), "optimizer.sgd.weight_decay");
        Require(!sgd.nesterov() || (sgd.momentum() > 0 && sgd.dampening() == 0),
                "optimizer.sgd.nesterov", "needs a momentum above 0 and no dampening");
        break;
      }
      case Optimizer::kAdam:
        AdamIsRight(optimizer.adam(), "optimizer.adam");
        break;
      case Optimizer::kAdamw:
        AdamIsRight(optimizer.adamw(), "optimizer.adamw");
        break;
      case Optimizer::kAdagrad: {
        const Adagrad& adagrad = optimizer.adagrad();
        Positive(adagrad.rate(), "optimizer.adagrad.rate");
        NotNegative(adagrad.rate_decay(), "optimizer.adagrad.rate_decay");
        NotNegative(adagrad.weight_decay(), "optimizer.adagrad.weight_decay");
        NotNegative(adagrad.initial_accumulator(), "optimizer.adagrad.initial_accumulator");
        NotNegative(adagrad.epsilon(), "optimizer.adagrad.epsilon");
        break;
      }
      case Optimizer::kRmsprop: {
        const RmsProp& rmsprop = optimizer.rmsprop();
        Positive(rmsprop.rate(), "optimizer.rmsprop.rate");
        BelowOne(rmsprop.alpha(), "optimizer.rmsprop.alpha");
        NotNegative(rmsprop.epsilon(), "optimizer.rmsprop.epsilon");
        NotNegative(rmsprop.weight_decay(), "optimizer.rmsprop.weight_decay");
        NotNegative(rmsprop.momentum(), "optimizer.rmsprop.momentum");
        break;
      }
      case Optimizer::KIND_NOT_SET:
        Require(false, "optimizer",
                "is missing; give one of sgd, adam, adamw, adagrad and rmsprop, such as "
                "optimizer { adam { rate: 0.001 } }");
    }
  }

  void OptimizerIsGiven() {
    const Optimizer& optimizer = job_.optimizer();
    KindIsRight(optimizer);
    NotNegative(optimizer.clip_norm(), "optimizer.clip_norm");
    for (int i = 0; i < optimizer.overrides_size(); ++i) {
      const OptimizerOverride& override = optimizer.overrides(i);
      const std::string path = absl::StrCat("optimizer.overrides[", i, "]");
      Require(!override.pattern().empty(), path + ".pattern",
              "must be a parameter's name, in which '*' stands for any text, such as \"*.bias\"");
      NotNegative(override.rate_factor(), path + ".rate_factor");
      NotNegative(override.weight_decay(), path + ".weight_decay");
    }
  }

  void LearningRates() {
    const LearningRate& rate = job_.learning_rate();
    if (rate.has_step_decay()) {
      Require(rate.step_decay().every_steps() > 0, "learning_rate.step_decay.every_steps",
              "must be at least 1");
      Positive(rate.step_decay().gamma(), "learning_rate.step_decay.gamma");
    }
    if (rate.has_cosine()) {
      const double minimum = rate.cosine().minimum();
      Require(minimum >= 0 && minimum <= 1, "learning_rate.cosine.minimum",
              "is a factor on the rate and must be at least 0 and at most 1");
    }
  }

  void Consistencies() {
    const Consistency& consistency = job_.consistency();
    if (!consistency.has_sync()) return Clocked(consistency);
    const Sync& sync = consistency.sync();
    Require(sync.reduction() == MEAN || sync.reduction() == SUM, "consistency.sync.reduction",
            "must be MEAN or SUM");
    Require(sync.lost_worker() == GO_ON || sync.lost_worker() == WAIT,
            "consistency.sync.lost_worker", "must be GO_ON or WAIT");
    Require(!sync.deterministic() || job_.threads() > 0, "consistency.sync.deterministic",
            "needs a fixed number of threads of each worker, such as threads: 1, since sums over "
            "another number of threads are other bits");
    Require(sync.buffers() == LOWEST_ORDINAL || sync.buffers() == AVERAGE,
            "consistency.sync.buffers", "must be LOWEST_ORDINAL or AVERAGE");
    Require(sync.buffers() != AVERAGE || job_.cluster().group() <= 1, "consistency.sync.buffers",
            "AVERAGE would leave out all but one of the buffers of each node group: must be "
            "LOWEST_ORDINAL or left out, or cluster.group 1");
    if (!job_.learning_rate().elastic()) return;
    Require(sync.reduction() == MEAN, "learning_rate.elastic",
            "multiplies the rate by the share of the workers whose gradients a step averages, but "
            "with consistency.sync.reduction SUM a step adds them up: must be false or left out");
    Require(!sync.deterministic(), "learning_rate.elastic",
            "multiplies the rate by the share of the workers that are left, but "
            "consistency.sync.deterministic goes on with all only: must be false or left out");
  }

  // bounded and async (docs/clocked.md has the table).
  void Clocked(const Consistency& consistency) {
    const bool bounded = consistency.has_bounded();
    const Reduction reduction =
        bounded ? consistency.bounded().reduction() : consistency.async().reduction();
    Require(reduction == MEAN || reduction == SUM,
            bounded ? "consistency.bounded.reduction" : "consistency.async.reduction",
            "must be MEAN or SUM");
    NotNegative(consistency.async().delay_compensation(), "consistency.async.delay_compensation");
    const auto averages_only = [&](bool asked, const char* field, const char* multiplies) {
      Require(!asked, field,
              absl::StrCat("multiplies the rate by the ", multiplies,
                           " whose gradients a step averages, but with consistency.",
                           bounded ? "bounded" : "async",
                           " each worker's gradient is applied by itself: must be false or left "
                           "out"));
    };
    averages_only(job_.learning_rate().linear_scaling(), "learning_rate.linear_scaling", "workers");
    averages_only(job_.learning_rate().elastic(), "learning_rate.elastic", "share of the workers");
  }

  void Members() {
    const Cluster& cluster = job_.cluster();
    Between(1, cluster.workers(), kMostMembers, "cluster.workers");
    Between(1, cluster.shards(), kMostMembers, "cluster.shards");
    Between(1, cluster.min_workers(), cluster.workers(), "cluster.min_workers");
    Pipelines();
    NodeGroups();
    BackupIsRight();
    UpdateAheadIsRight();
    const Sync& sync = job_.consistency().sync();
    Require(!sync.deterministic() || sync.lost_worker() != GO_ON ||
                cluster.min_workers() == cluster.workers(),
            "consistency.sync.lost_worker",
            absl::StrCat("GO_ON with cluster.min_workers ", cluster.min_workers(), " below ",
                         cluster.workers(),
                         " workers lets steps go on with fewer, whose sums are "
                         "other bits, but the job is deterministic: must be WAIT or left out, or "
                         "cluster.min_workers must be ",
                         cluster.workers(), " or left out"));
    Between(0, job_.max_restarts(), kMostRestarts, "max_restarts");
    CheckSlurm(cluster.slurm(),
               [this](bool right, std::string_view field, std::string_view problem) {
                 Require(right, field, problem);
               });
  }

  void Pipelines() {
    const uint32_t stages = job_.cluster().stages();
    if (stages == 0) {
      Require(!job_.has_pipeline(), "pipeline",
              "is of jobs with stages: must be left out, or cluster.stages must be above 0");
      return;
    }
    Between(1, stages, kMostMembers / std::max(1U, job_.cluster().workers()), "cluster.stages");
    Require(job_.cluster().min_workers() == job_.cluster().workers(), "cluster.min_workers",
            "must be cluster.workers or left out: a pipeline that has lost a process waits for "
            "another one");
    Require(!job_.model().has_torchscript() && !job_.model().has_own(), "cluster.stages",
            "must be 0 or left out: a model of one's own cannot be cut into stages");
    const Consistency& consistency = job_.consistency();
    Require(consistency.has_sync(), "consistency", "must be sync where cluster.stages is not 0");
    Require(consistency.sync().backup() == 0, "consistency.sync.backup",
            "must be 0 or left out where cluster.stages is not 0");
    Require(consistency.sync().lost_worker() != GO_ON, "consistency.sync.lost_worker",
            "must be WAIT or left out where cluster.stages is not 0: a pipeline that has lost a "
            "process waits for another one");
    const Pipeline& pipeline = job_.pipeline();
    const uint32_t parts = pipeline.parts_per_stage();
    Require(PipelineSchedule_IsValid(pipeline.schedule()), "pipeline.schedule",
            "must be GPIPE, ONE_F_ONE_B, EAGER, INTERLEAVED, ZERO_BUBBLE, CHIMERA, PIPEDREAM or "
            "TWO_BUFFER_WEIGHTS");
    Require(
        pipeline.schedule() != PIPEDREAM || job_.accumulate() == 1, "accumulate",
        "must be 1 or left out where pipeline.schedule is PIPEDREAM: each microbatch is a step");
    Require(pipeline.schedule() != TWO_BUFFER_WEIGHTS || job_.accumulate() >= stages, "accumulate",
            absl::StrCat("must be at least cluster.stages, ", stages,
                         ", where pipeline.schedule is TWO_BUFFER_WEIGHTS: with fewer microbatches "
                         "in a step a forward waits for weights that its own step makes"));
    if (pipeline.schedule() == INTERLEAVED) {
      Between(2, parts, 64, "pipeline.parts_per_stage");
    } else {
      Require(parts == 1, "pipeline.parts_per_stage",
              "must be 1 or left out, unless pipeline.schedule is INTERLEAVED");
    }
    Require(!pipeline.has_forwards_ahead() || pipeline.schedule() == EAGER,
            "pipeline.forwards_ahead", "is of the schedule EAGER: must be left out");
    const auto cuts = static_cast<uint64_t>(pipeline.cut_before_size());
    Require(cuts == 0 || cuts + 1 == uint64_t{stages} * parts, "pipeline.cut_before",
            absl::StrCat("must name ", uint64_t{stages} * parts - 1, " layers, not ", cuts,
                         ": one for each part but the first"));
    const auto speeds = static_cast<uint32_t>(pipeline.stage_speed_size());
    Require(speeds == 0 || speeds == stages, "pipeline.stage_speed",
            absl::StrCat("must have ", stages, " numbers, one for each stage, not ", speeds));
    for (const double speed : pipeline.stage_speed()) {
      Require(speed >= 1e-3 && speed <= 1e3, "pipeline.stage_speed",
              absl::StrCat("must be at least 0.001 and at most 1000, not ", speed));
    }
  }

  void NodeGroups() {
    const Cluster& cluster = job_.cluster();
    Between(1, cluster.group(), cluster.workers(), "cluster.group");
    Require(GroupReduction_IsValid(cluster.group_reduction()), "cluster.group_reduction",
            "must be ON_HOST or ON_GPUS");
    Require(cluster.group_reduction() != ON_GPUS || job_.device() == CUDA,
            "cluster.group_reduction", "must be ON_HOST or left out unless device is CUDA");
    Require(cluster.group_reduction() != ON_GPUS || cluster.group() > 1, "cluster.group_reduction",
            "must be left out where cluster.group is 1: there is nothing to add up");
    if (cluster.group() <= 1) return;
    Require(cluster.workers() % cluster.group() == 0, "cluster.group",
            absl::StrCat("must divide cluster.workers, ", cluster.workers(), ", which ",
                         cluster.group(), " does not: all node groups have as many workers"));
    Require(cluster.stages() == 0, "cluster.group",
            "must be 1 or left out where cluster.stages is not 0: a pipeline has one worker");
    Require(cluster.min_workers() == cluster.workers(), "cluster.min_workers",
            "must be cluster.workers or left out where cluster.group is above 1: a node group that "
            "has lost a worker waits for another one");
    const Consistency& consistency = job_.consistency();
    Require(consistency.has_sync(), "consistency", "must be sync where cluster.group is above 1");
    Require(consistency.sync().backup() == 0, "consistency.sync.backup",
            "must be 0 or left out where cluster.group is above 1");
    Require(consistency.sync().lost_worker() != GO_ON, "consistency.sync.lost_worker",
            "must be WAIT or left out where cluster.group is above 1: a node group that has lost a "
            "worker waits for another one");
  }

  void BackupIsRight() {
    const Sync& sync = job_.consistency().sync();
    const uint32_t workers = job_.cluster().workers();
    if (sync.backup() == 0) return;
    Require(sync.backup() < workers, "consistency.sync.backup",
            absl::StrCat("must be below cluster.workers, ", workers, ", not ", sync.backup(),
                         ": a step counts the others"));
    Require(!sync.deterministic(), "consistency.sync.backup",
            "lets the order of arrival decide whose samples a step uses, but the job is "
            "deterministic: must be 0 or left out");
    Require(sync.lost_worker() != WAIT, "consistency.sync.backup",
            "lets steps go on without a worker, but consistency.sync.lost_worker is WAIT: one of "
            "the two must be left out");
  }

  void UpdateAheadIsRight() {
    if (!job_.consistency().sync().update_ahead()) return;
    const std::string path = "consistency.sync.update_ahead";
    Require(job_.consistency().sync().backup() == 0, path,
            "computes a step with all workers' gradients before it is decided, but with "
            "consistency.sync.backup it is decided with fewer: one of the two must be left out");
    Require(job_.optimizer().clip_norm() == 0, path,
            "computes a step before all of its gradients are there, but optimizer.clip_norm scales "
            "it by their norm: one of the two must be left out");
    Require(!job_.optimizer().skip_nonfinite(), path,
            "computes a step before all of its gradients are there, but optimizer.skip_nonfinite "
            "(which float16 needs) looks at them first: one of the two must be left out");
  }

  void Length() {
    Require(job_.has_epochs() || job_.has_steps(), "epochs",
            "is missing; give epochs or steps, such as epochs: 5");
    Require(!job_.has_epochs() || !job_.has_steps(), "steps",
            "epochs and steps are both given; give one of them");
    Require(!job_.has_epochs() || job_.epochs() > 0, "epochs", "must be at least 1");
    Require(!job_.has_steps() || job_.steps() > 0, "steps", "must be at least 1");
  }

  void StartIsRight() {
    Require(!job_.checkpoint().ignore_unexpected() || !job_.checkpoint().start_from().empty(),
            "checkpoint.ignore_unexpected",
            "is about the weights that checkpoint.start_from names, and it names none: must be "
            "false or left out");
  }

  void Computing() {
    Between(0, job_.threads(), kMostThreads, "threads");
    Between(1, job_.accumulate(), kMostSamples, "accumulate");
    Between(1, job_.bucket_kib(), kMostBucketKib, "bucket_kib");
    const PipelineSchedule schedule = job_.pipeline().schedule();
    Require(job_.device() == CPU || (schedule != PIPEDREAM && schedule != TWO_BUFFER_WEIGHTS),
            "device",
            "must be CPU where pipeline.schedule is PIPEDREAM or TWO_BUFFER_WEIGHTS: in this "
            "release stages keep several versions of their weights on CPUs only");
    Require(job_.device() == CPU || !job_.consistency().sync().deterministic(), "device",
            "must be CPU where the job is deterministic: LibTorch's kernels for GPUs are not");
    Require(!job_.cuda_graphs() || job_.device() != CPU, "cuda_graphs",
            "must be left out where device is CPU");
    Require(!job_.cuda_graphs() || job_.cluster().stages() == 0, "cuda_graphs",
            "must be left out where cluster.stages is not 0: what stages do hangs on each other");
    Require(Precision_IsValid(job_.precision()), "precision",
            "must be FLOAT32, BFLOAT16_AUTOCAST or FLOAT16_AUTOCAST");
    Require(job_.precision() == FLOAT32 || job_.cluster().stages() == 0, "precision",
            "must be FLOAT32 where cluster.stages is not 0: in this release stages compute in "
            "float32");
    LossScaleIsRight();
    Require(job_.gradients_on_wire() == AS_COMPUTED || job_.gradients_on_wire() == WIRE_BFLOAT16 ||
                job_.gradients_on_wire() == WIRE_FLOAT16,
            "gradients_on_wire", "must be AS_COMPUTED, WIRE_BFLOAT16 or WIRE_FLOAT16");
    Require(
        job_.gradients_on_wire() == AS_COMPUTED || !job_.consistency().sync().deterministic(),
        "gradients_on_wire",
        "rounds what goes to other machines, so that the result hangs on where the shards are, but "
        "the job is deterministic: must be AS_COMPUTED or left out");
  }

  void LossScaleIsRight() {
    const bool float16 = job_.precision() == FLOAT16_AUTOCAST;
    Require(float16 || !job_.has_loss_scale(), "loss_scale",
            "is for precision: FLOAT16_AUTOCAST; leave it out");
    if (!float16) return;
    Require(job_.optimizer().skip_nonfinite(), "optimizer.skip_nonfinite",
            "must be true or left out where precision is FLOAT16_AUTOCAST: gradients that float16 "
            "cannot hold come as infinities");
    const double initial = job_.loss_scale().initial();
    int exponent = 0;
    Require(std::frexp(initial, &exponent) == 0.5 && initial >= 1 && initial <= 1 << 24,
            "loss_scale.initial", "must be a power of two, 1 to 16777216");
    Require(job_.loss_scale().growth_interval() == 0 || !job_.consistency().sync().deterministic(),
            "loss_scale.growth_interval",
            "must be 0 where the job is deterministic: a checkpoint does not have the loss scale, "
            "so that a job that goes on from one would skip other steps");
  }

  // A finite duration within bounds.
  void DurationIsRight(const std::string& text, absl::Duration least, absl::Duration most,
                       std::string_view field) {
    absl::Duration duration;
    const bool parsed = absl::ParseDuration(text, &duration);
    Require(parsed, field,
            absl::StrCat("'", text, "' is no duration, such as \"10s\", \"500ms\" or \"2m\""));
    Require(!parsed || (duration >= least && duration <= most), field,
            absl::StrCat("must be at least ", absl::FormatDuration(least), " and at most ",
                         absl::FormatDuration(most), ", not ", text));
  }

  void Checkpoints() {
    const Checkpoint& checkpoint = job_.checkpoint();
    if (!checkpoint.every().empty()) {
      DurationIsRight(checkpoint.every(), absl::Seconds(1), absl::Hours(24 * 365),
                      "checkpoint.every");
    }
    Require(checkpoint.every_steps() == 0 || !IsClocked(job_), "checkpoint.every_steps",
            "counts the steps of a sync job; in bounded and async give checkpoint.every, such as "
            "every: \"10m\"");
  }

  void Files() {
    const std::string& board = job_.tensorboard();
    bool printable = true;
    for (const char c : board) printable = printable && !absl::ascii_iscntrl(c);
    Require(printable, "tensorboard", "must name a folder: it has control characters");
    Require(!absl::StrContains(board, "://"), "tensorboard",
            absl::StrCat("must be a folder of the file system, not the address ", board));
    const std::string normal = std::filesystem::path(board).lexically_normal().string();
    Require(normal != "log" && !absl::StartsWith(normal, "log/"), "tensorboard",
            "must not lie in `log`, where the coordinator keeps its records: choose another "
            "folder, such as tensorboard: \"tensorboard\"");
  }

  void Times() {
    DurationIsRight(job_.liveness(), absl::Seconds(1), absl::Hours(24), "liveness");
    DurationIsRight(job_.stall_timeout(), absl::Seconds(1), absl::Hours(24 * 365), "stall_timeout");
    // A process counts as dead before anybody could see that it gets nowhere.
    absl::Duration liveness;
    absl::Duration stall_timeout;
    Require(!absl::ParseDuration(job_.liveness(), &liveness) ||
                !absl::ParseDuration(job_.stall_timeout(), &stall_timeout) ||
                stall_timeout >= liveness,
            "stall_timeout",
            absl::StrCat("must be at least liveness, ", job_.liveness(), ", not ",
                         job_.stall_timeout()));
    DurationIsRight(job_.autonomy(), absl::ZeroDuration(), absl::Hours(24 * 7), "autonomy");
    // Within a liveness of its death no coordinator can be replaced: so long its successor waits
    // for an answer of it.
    absl::Duration autonomy;
    Require(
        !absl::ParseDuration(job_.liveness(), &liveness) ||
            !absl::ParseDuration(job_.autonomy(), &autonomy) || autonomy == absl::ZeroDuration() ||
            autonomy >= liveness,
        "autonomy",
        absl::StrCat("must be at least liveness, ", job_.liveness(),
                     ", or \"0s\": the job then ends with its coordinator, not ", job_.autonomy()));
    DurationIsRight(job_.preemption_grace(), absl::ZeroDuration(), absl::Hours(24),
                    "preemption_grace");
  }

  const JobSource& source_;
  const JobConfig& job_;
  absl::Status first_;
};

}  // namespace

absl::Status CheckJob(const JobSource& source) { return Checker(source).Run(); }

}  // namespace parley
