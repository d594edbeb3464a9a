"""The GPU worker: runs the batches of its slot and says what became of each member.

Three threads keep the device busy. *Fetch* reads the slot's partition and lays a
batch's bytes out as arrays, *run* does nothing but run, and *reply* owns the delivery
core, writes what it decides and puts results on their way; so the next batch lies in
memory when a run ends. A fourth one follows the model folder: it loads, probes and
announces versions while the others go on. A probe shares the device with running
batches rather than waiting for a pause that may never come; its times are medians, and
a first guess only.
"""
