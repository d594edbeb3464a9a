"""The rules that the protocol marks ◆, each taken out of the code in one place, and the
test that fails then.

``.venv/bin/python -m tests.delivery`` takes out one after the other. Whoever changes a
line that is named here changes the entry with it.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["RULES", "Rule"]


class Rule(NamedTuple):
    """``mark``: the protocol's words (README.md of ``headrace.delivery``) with the ◆.
    In ``module`` the code ``right`` is replaced by ``wrong``, and ``noticed_by`` fails.
    """

    mark: str
    noticed_by: str
    module: str
    right: str
    wrong: str


def _rule(mark: str, noticed_by: str, module: str, right: str, wrong: str) -> Rule:
    where = module if "." in module else f"headrace.delivery.{module}"
    path = noticed_by if "/" in noticed_by else f"tests/delivery/{noticed_by}"
    return Rule(mark, path, where, right, wrong)


RULES = (
    # Time
    _rule(
        "**D1 ◆**",
        "test_time.py::test_the_quickest_round_trip_of_the_last_minute_counts",
        "logtime",
        "self._samples and self._samples[-1].round_trip_us >= round_trip_us:",
        "self._samples:",
    ),
    _rule(
        "**D3 ◆**",
        "test_time.py::test_a_stopped_broker_silences_nobody",
        "roster",
        "self._newest_us - self._paused_us - last_us < us",
        "self._newest_us - last_us < us",
    ),
    _rule(
        "**D3 ◆**",
        "test_leases.py::test_nobody_is_silent_while_status_is_not_read",
        "leases",
        "        return now_us - self._heard_us <= self._limits.heartbeat_late_us\n",
        "        return True\n",
    ),
    # Takeover
    _rule(
        "**T5 ◆**",
        "test_takeover.py::"
        "test_nothing_is_written_under_an_epoch_before_its_confirming_commit",
        "takeover",
        "        self._commit = self._commits.take(entries, self._epoch)\n",
        "        self._commit = self._commits.take(entries, self._epoch)\n"
        "        self._fetch(_Step.FIND_END, ())\n",
    ),
    _rule(
        "a reason to\ncommit ◆",
        "test_takeover.py::test_a_higher_claim_alone_never_stops_an_owner",
        "lane",
        "                    self._commits.want(everything=True)\n",
        "                    self._drop(now_us)\n",
    ),
    # Requests
    _rule(
        "joins it ◆",
        "test_requests.py::test_a_duplicate_joins_its_entry_and_settles_with_it",
        "ledger",
        "        entry = self._by_key.get(request.key)\n",
        "        entry = None\n",
    ),
    _rule(
        "never join ◆",
        "test_requests.py::test_a_hand_made_record_never_joins_another",
        "ledger",
        "        entry = self._by_key.get(request.key)\n",
        "        entry = next(\n"
        "            (\n"
        "                each\n"
        "                for each in self._by_key.values()\n"
        "                if each.request.id == request.id\n"
        "            ),\n"
        "            None,\n"
        "        )\n",
    ),
    _rule(
        "that wrote it ◆",
        "tests/services/ingress/test_handler.py::"
        "test_the_cancel_goes_the_way_of_its_request",
        "services.ingress.producing",
        "            exchange.outlet.produce(\n",
        "            next(iter(self._producers.values())).produce(\n",
    ),
    _rule(
        "with a key before ◆",
        "test_keys.py::test_nothing_with_a_key_runs_before_the_answers_are_read",
        "keys",
        "        knows = self._is_read or ",
        "        knows = True or ",
    ),
    _rule(
        "is not\nremembered ◆",
        "test_keys.py::test_an_error_that_invites_a_retry_is_not_remembered",
        "verdicts",
        "        if entry.keyed is not None and not is_final(reason):\n",
        "        if False:\n",
    ),
    _rule(
        "is another try ◆",
        "test_keys.py::test_who_asks_again_before_the_refusals_ack_is_another_try",
        "verdicts",
        "                self._ledger.told(ending.entry)\n",
        "                pass\n",
    ),
    _rule(
        "is another try ◆",
        "test_keys.py::test_another_try_waits_until_the_refusal_is_acked",
        "keys",
        "            if self._ledger.is_told(entry.request.key):\n",
        "            if False:\n",
    ),
    _rule(
        "is not\nremembered ◆",
        "test_keys.py::test_a_cancel_ends_a_try_and_not_its_key",
        "cancels",
        "        if not self._until_us or entry.keyed is not None:\n",
        "        if not self._until_us:\n",
    ),
    # Slots
    _rule(
        "known incarnation ◆",
        "test_slots.py::test_a_batch_is_addressed_to_the_known_incarnation",
        "slots",
        "        incarnation = slot.incarnation\n",
        "        incarnation = UNKNOWN\n",
    ),
    _rule(
        "known incarnation ◆",
        "test_leases.py::test_a_slot_that_reports_gets_nothing_before_it_is_heard",
        "slot_table",
        " or slot.is_draining or not self.is_heard(slot):\n",
        " or slot.is_draining:\n",
    ),
    _rule(
        "known incarnation ◆",
        "test_slots.py::test_a_new_process_is_asked_before_it_is_sent_anything",
        "slot_table",
        "        if not slot.is_usable or slot.is_draining",
        "        if slot.is_draining",
    ),
    _rule(
        "became of that ◆",
        "test_slots.py::"
        "test_a_batch_counts_from_its_produce_on_even_when_that_timed_out",
        "slots",
        "            if is_lost or (slot.sync == write and not slot.is_usable):\n",
        "            slot.held = {\n"
        "                batch: flight\n"
        "                for batch, flight in slot.held.items()\n"
        "                if flight.write != write\n"
        "            }\n"
        "            if is_lost or (slot.sync == write and not slot.is_usable):\n",
    ),
    _rule(
        "takes it out ◆",
        "test_slots.py::test_a_done_read_twice_frees_one_credit",
        "slots",
        "            if slot.held.pop(done.batch, None) is not None:\n",
        "            slot.held.pop(done.batch, None)\n"
        "            if slot.held.pop(next(iter(slot.held), ''), None) is not None:\n",
    ),
    _rule(
        "only the successes count ◆",
        "test_slots.py::test_of_an_old_processs_done_only_the_successes_count",
        "slots",
        " = slot is not None and done.incarnation == slot.incarnation\n",
        " = slot is not None\n",
    ),
    _rule(
        "only the successes count ◆",
        "test_slots.py::test_a_new_process_has_none_of_the_old_ones_batches",
        "slots",
        "        self._lose_all(slot, now_us)\n",
        "",
    ),
    _rule(
        "predecessor's and adopted ◆",
        "test_slots.py::test_a_batch_that_a_report_does_not_name_is_tried_again",
        "slots",
        "        for flight in before.values():\n"
        "            self._lose(slot, flight, now_us, Toll.ATTEMPT)\n",
        "        slot.held |= before\n",
    ),
    _rule(
        "predecessor's and adopted ◆",
        "test_takeover.py::"
        "test_a_predecessors_batch_is_adopted_with_the_members_that_are_queued",
        "slots",
        "                self._attempts.adopt(entry, held.batch, now_us)\n",
        "",
    ),
    _rule(
        "predecessor's and adopted ◆",
        "test_slots.py::test_a_report_that_echoes_another_question_changes_nothing",
        "slots",
        "        if not is_ours or report.k < slot.k_counts:\n",
        "        if False:\n",
    ),
    # Leases
    _rule(
        "all members are settled ◆",
        "test_leases.py::test_a_lease_is_watched_after_all_members_are_settled",
        "slots",
        "                if not flight.is_lapsed and now_us >= flight.lease_at_us\n",
        "                if not flight.is_lapsed and now_us >= flight.lease_at_us\n"
        "                and any(e.flies_in(flight.batch) for e in flight.members)\n",
    ),
    _rule(
        "credit stays taken ◆",
        "test_leases.py::test_a_lapsed_lease_gives_no_credit_back",
        "slots",
        "            flight.is_lapsed = True\n            own",
        "            slot.held.pop(flight.batch)\n            own",
    ),
    # Verdicts
    _rule(
        "the decision is accepted ◆",
        "test_verdicts.py::"
        "test_a_verdict_is_written_only_after_a_commit_that_was_sent_after_it",
        "verdicts",
        "        self._end(entry, self._waiting, terminal, letter)\n",
        "        self._end(entry, self._decided, terminal, letter)\n",
    ),
    _rule(
        "the decision is accepted ◆",
        "test_verdicts.py::test_a_commit_that_was_out_already_proves_nothing",
        "verdicts",
        "            self._decided += endings\n",
        "            self._decided += endings + self._waiting\n"
        "            self._waiting = []\n",
    ),
    _rule(
        "the decision is accepted ◆",
        "test_verdicts.py::"
        "test_a_commit_without_an_answer_is_sent_again_at_the_next_tick",
        "verdicts",
        "        if accepted:\n",
        "        if True:\n",
    ),
    _rule(
        "again without them ◆",
        "test_verdicts.py::test_a_refusal_that_is_not_acked_is_written_again",
        "verdicts",
        "        if offset is None:\n            self._again += endings\n",
        "        if False:\n            self._again += endings\n",
    ),
    _rule(
        "again without them ◆",
        "test_verdicts.py::test_a_refusal_is_settled_when_it_is_acked_and_not_before",
        "verdicts",
        "        self._end(entry, self._decided, terminal, None)\n\n    def cancel",
        "        self._end(entry, self._decided, terminal, None)\n"
        "        self._ledger.settle(entry, None)\n\n    def cancel",
    ),
    # Watermark
    _rule(
        "**D8 ◆**",
        "test_watermark.py::"
        "test_c_reaches_back_to_the_dones_of_what_is_settled_above_the_watermark",
        "watermark",
        "        return min(min(known, default=completions_position), "
        "completions_position)\n",
        "        return completions_position\n",
    ),
    _rule(
        "passes it only then ◆",
        "test_watermark.py::"
        "test_a_retention_gap_is_one_dead_letter_and_only_then_passed",
        "partitions",
        "        entry = self._ledger.lose(log, log_start, made_up)\n",
        "        entry = self._ledger.lose(log, log_start, made_up)\n"
        "        self._ledger.settle(entry, None)\n",
    ),
    # Around it
    _rule(
        "**D6 ◆**",
        "tests/services/ingress/test_handler.py::"
        "test_clients_that_use_one_id_get_their_own_answers",
        "services.ingress.identity",
        "        bits = self._bits\n",
        "        return '1'\n",
    ),
    _rule(
        "kept for others ◆",
        "tests/services/ingress/test_handler.py::"
        "test_a_client_that_leaves_does_not_cancel_what_is_kept_for_others",
        "services.ingress.handler",
        "        if was_waiting and exchange.head.keep is None:\n",
        "        if was_waiting:\n",
    ),
    _rule(
        "**D9 ◆**",
        "tests/jobs/test_desk.py::test_a_late_result_wins_over_a_dead_letter",
        "headrace.jobs.desk",
        "                self._answers.withdraw(row)\n",
        "",
    ),
    _rule(
        "cut or replaced ◆",
        "test_watermark.py::test_a_log_replaced_under_its_reader_is_read_from_its_end",
        "partitions",
        "        elif log.position > lost.log_end:\n",
        "        elif False:\n",
    ),
    _rule(
        "cut or replaced ◆",
        "test_takeover.py::"
        "test_completions_that_end_below_the_position_take_the_lane_anew",
        "lane",
        "        if position <= lost.log_end:\n",
        "        if True:\n",
    ),
    # Links
    _rule(
        "**L1 ◆**",
        "test_links.py::"
        "test_what_went_through_the_topic_is_read_before_anything_goes_by_a_link",
        "links",
        "        self._found[slot] = Link(link, incarnation)\n",
        "        self._used[slot] = Link(link, incarnation)\n",
    ),
    _rule(
        "**L2 ◆**",
        "test_links.py::"
        "test_a_lost_link_is_asked_about_through_the_topic_and_never_used_again",
        "slots",
        "            self._slots[event.slot].ask(now_us)\n",
        "            pass\n",
    ),
    _rule(
        "**L3 ◆**",
        "test_links.py::"
        "test_a_slots_new_process_is_not_sent_to_by_the_link_of_the_old_one",
        "links",
        "        if link is not None and link.incarnation != slot.incarnation:\n",
        "        if False:\n",
    ),
    _rule(
        "**L4 ◆**",
        "test_links.py::"
        "test_what_lies_in_a_link_when_its_former_writes_to_the_topic_is_dropped",
        "worker_ways",
        "            if link.former == order.former and not link.follows(order)\n",
        "            if False\n",
    ),
    _rule(
        "**L4 ◆**",
        "test_links.py::test_a_sync_from_before_a_link_was_opened_does_not_end_it",
        "worker_ways",
        "            if link.former == order.former and not link.follows(order)\n",
        "            if link.former == order.former\n",
    ),
    _rule(
        "**L5 ◆**",
        "test_links.py::test_a_link_whose_opening_comes_behind_a_later_sync_is_over",
        "worker_ways",
        "        is_over = former == asked.former and "
        "(event.epoch, event.k) < asked[:2]\n",
        "        is_over = False\n",
    ),
    _rule(
        "**L6 ◆**",
        "test_links.py::test_a_sync_that_names_a_newer_process_ends_this_one",
        "worker",
        "        if (event.incarnation or 0) > self._incarnation:\n",
        "        if isinstance(event, BatchRead) and "
        "event.incarnation > self._incarnation:\n",
    ),
    _rule(
        "**L6 ◆**",
        "test_links.py::test_a_sync_names_the_process_that_its_former_knows",
        "slots",
        "                known = None if slot.incarnation == UNKNOWN "
        "else slot.incarnation\n",
        "                known = None\n",
    ),
    # The worker
    _rule(
        "**W1 ◆**",
        "test_worker.py::test_a_worker_reads_from_the_end_that_it_saw_before_it_joined",
        "worker",
        "        return [StartReading(self._ways.position)]\n",
        "        return [StartReading(0)]\n",
    ),
    _rule(
        "**W2 ◆**",
        "test_worker.py::test_a_batch_of_a_superseded_former_is_refused",
        "worker",
        "        if batch.epoch < self._epoch or (\n",
        "        if False and (\n",
    ),
    _rule(
        "**W2 ◆**",
        "test_worker.py::test_a_batch_of_an_older_incarnation_is_never_run",
        "worker",
        "        if batch.incarnation != self._incarnation:\n",
        "        if False:\n",
    ),
    _rule(
        "**W5 ◆**",
        "test_worker_runs.py::test_done_waits_until_every_reply_is_acked",
        "worker",
        "        return [WriteReplies(event.batch, succeeded)]\n",
        "        return [\n"
        "            WriteReplies(event.batch, succeeded),\n"
        "            self._done(held, event.outcomes, now_us),\n"
        "        ]\n",
    ),
    _rule(
        "**W5 ◆**",
        "test_worker_runs.py::test_a_reply_that_failed_is_reported_unacked",
        "worker_held",
        "                for member in () if acked else members:\n",
        "                for member in ():\n",
    ),
)
