"""What other programs call our settings: two names are accepted, the others are refused with ours."""

from __future__ import annotations

from fnmatch import fnmatchcase

# (section, their name) -> our name; accepted in that section.
ALIASES = {("rollout", "num_generations"): "group_size", ("algorithm", "beta"): "kl"}

# our name -> theirs, `*` for any ending; from TRL, verl, OpenRLHF, prime-rl, open-instruct,
# NeMo-RL, SkyRL, tinker.
_THEIRS = {
    "rollout.group_size": (
        "num_generations rollout.n n_samples_per_prompt num_samples_per_prompt_rollout "
        "num_generations_per_prompt"
    ),
    "rollout.prompts_per_step": (
        "train_batch_size batch_size num_unique_prompts_rollout num_prompts_per_step groups_per_batch"
    ),
    "algorithm.staging.minibatches": (
        "steps_per_generation ppo_mini_batch ppo_mini_batch_size num_mini_batches policy_mini_batch_size "
        "num_substeps"
    ),
    "algorithm.staging.epochs": (
        "num_iterations ppo_epochs max_epochs num_epochs num_train_epochs update_epochs_per_batch"
    ),
    "optim.micro_batch_tokens": (
        "per_device_train_batch_size ppo_max_token_len_per_gpu micro_train_batch_size "
        "train_micro_batch_size pack_length max_tokens_per_microbatch gradient_accumulation_steps"
    ),
    "rollout.max_completion_length": (
        "max_response_length max_new_tokens max_completion_tokens response_length max_generate_length "
        "max_tokens"
    ),
    "algorithm.clip.low": (
        "epsilon clip_ratio clip_ratio_low clip_lower eps_clip eps_clip_low eps_clip_low_high* ratio_clip_min"
    ),
    "algorithm.clip.high": (
        "epsilon_high clip_ratio_high clip_higher eps_clip_high ratio_clip_max cispo_eps_clip_high"
    ),
    "algorithm.kl": (
        "beta kl_loss_coef kl_coef init_coef init_kl_coef kl_tau reference_policy_kl_penalty kl_penalty_coef"
    ),
    "algorithm.advantage.kind": (
        "scale_rewards norm_adv_by_std_in_grpo no_std_norm advantage_normalization_type "
        "normalize_rewards grpo_norm_by_std"
    ),
    "algorithm.aggregate": "loss_type loss_agg_mode loss_denominator token_level_loss loss_reduction",
    "algorithm.admit": (
        "filter_groups dynamic_filtering* filter_zero_advantages active_sampling use_dynamic_sampling "
        "dynamic_sampling remove_constant_reward_groups"
    ),
    "algorithm.correction": (
        "vllm_importance_sampling_* rollout_is* is_correction* use_rho_correction "
        "truncated_importance_sampling* off_policy_correction"
    ),
    "optim.learning_rate": "lr adam.lr",
    "budget.steps": (
        "max_steps total_training_steps total_epochs num_episodes total_episodes max_num_steps "
        "max_training_steps"
    ),
    "eval.every": (
        "eval_steps test_freq eval.steps eval.interval local_eval_every val_period eval_interval eval_every"
    ),
    "checkpoint.every": (
        "save_steps save_freq ckpt.interval checkpoint.save_steps checkpoint_state_freq save_period "
        "ckpt_interval save_every"
    ),
    "checkpoint.keep": "save_total_limit max_actor_ckpt_to_keep keep_top_k",
    "model.path": "model_name_or_path model_name model.pretrain",
    "rollout.temperature": "sampling_temperature",
    "track.mlflow": "report_to",
}

FOREIGN = {name: ours for ours, names in _THEIRS.items() for name in names.split()}


def ours(dotted: str) -> str | None:
    """Return what we call another program's setting, by its last two names or its last."""
    parts = dotted.replace("-", "_").split(".")
    for name in (".".join(parts[-2:]), parts[-1]):
        for pattern, mine in FOREIGN.items():
            if fnmatchcase(name, pattern):
                return mine
    return None
