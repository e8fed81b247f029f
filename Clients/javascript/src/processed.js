import {LIMITS} from "./limits.js";

/**
 * The processed sequences of one stream: everything up to `sequence`, and ranges above it.
 *
 * Sequences of a stream arrive in ascending order, with gaps. A sequence that is skipped on arrival has no message. A
 * hole is a message that this session received and the app has not processed. `sequence` stays below the lowest hole.
 */
export class ProcessedSet {
  /** `ranges` are pairs `[first, last]` in any order; overlapping ones are joined. */
  constructor(sequence = 0, ranges = []) {
    this.sequence = sequence;
    this.ranges = ranges.filter(([first, last]) => first <= last && last <= LIMITS.greatestSequence);
    this.normalize();
  }

  contains(candidate) {
    return candidate <= this.sequence || this.ranges.some(([first, last]) => first <= candidate && candidate <= last);
  }

  /** Marks a received sequence as processed; `holes` are ascending, without `processed`. */
  insert(processed, holes) {
    if (holes.length === 0 || holes[0] > processed) {
      this.sequence = Math.max(this.sequence, processed);
    } else {
      let nearest = holes[0];
      for (const hole of holes) if (hole < processed) nearest = hole;
      this.sequence = Math.max(this.sequence, holes[0] - 1);
      this.ranges.push([nearest + 1, processed]);
    }
    this.normalize();
  }

  /** Marks one sequence as processed, without a conclusion about lower ones. */
  insertAlone(processed) {
    this.ranges.push([processed, processed]);
    this.normalize();
  }

  /** Returns the position for a Hello or an Ack, with the lowest ranges that fit into a frame. */
  position(stream) {
    const ranges = this.ranges.slice(0, LIMITS.ranges).map(([first, last]) => ({first, last}));
    return {stream, sequence: this.sequence, ranges};
  }

  normalize() {
    if (this.ranges.length === 0) return;
    const joined = [];
    for (const [first, last] of this.ranges.sort((one, other) => one[0] - other[0])) {
      if (last <= this.sequence) continue;
      const end = joined[joined.length - 1];
      if (first <= this.sequence + 1) this.sequence = last;
      else if (end && first <= end[1] + 1) end[1] = Math.max(end[1], last);
      else joined.push([first, last]);
    }
    // The highest ranges are dropped beyond the limit. The gateway may deliver their messages again.
    this.ranges = joined.slice(0, LIMITS.holes + 1);
  }
}
