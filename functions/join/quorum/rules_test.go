package quorum_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/functions/join/quorum"
	"muster/wire"
)

func TestThresholdAndToleranceOfEverySize(t *testing.T) {
	tolerance := map[int]int{}
	for _, r := range []struct{ from, to, want int }{{3, 4, 0}, {5, 8, 1}, {9, 15, 2}, {16, 23, 3}, {24, 32, 4}} {
		for n := r.from; n <= r.to; n++ {
			tolerance[n] = r.want
		}
	}
	threshold := map[int]int{3: 2, 4: 3, 5: 3, 8: 5, 9: 5, 15: 8, 16: 9, 31: 16, 32: 17}
	for n := quorum.MinMembers; n <= quorum.MaxMembers; n++ {
		if got := quorum.Tolerance(n); got != tolerance[n] {
			t.Errorf("Tolerance(%d) = %d, want %d", n, got, tolerance[n])
		}
		if want, listed := threshold[n]; listed && quorum.Threshold(n) != want {
			t.Errorf("Threshold(%d) = %d, want %d", n, quorum.Threshold(n), want)
		}
		if quorum.Threshold(n)+quorum.Tolerance(n) > n {
			t.Errorf("%d members: more commits are wanted than there are members", n)
		}
		if 2*quorum.Threshold(n) <= n {
			t.Errorf("%d members: two majorities without a common member", n)
		}
	}
}

func TestRulesHaveTheseNames(t *testing.T) {
	got := []quorum.Rule{
		quorum.RuleMembershipSize, quorum.RuleDuplicateMember, quorum.RuleName, quorum.RuleThreshold,
		quorum.RuleEpoch, quorum.RuleRackID, quorum.RuleCoordinatorIsMember, quorum.RuleMemberOrder,
		quorum.RuleEncryptedRackSecrets, quorum.RulePriorEpoch,
	}
	want := []quorum.Rule{
		"membership_size", "duplicate_member", "name", "threshold",
		"epoch", "rack_id", "coordinator_is_member", "member_order",
		"encrypted_rack_secrets", "prior_epoch",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSizes(t *testing.T) {
	for n, ok := range map[int]bool{-1: false, 0: false, 2: false, 3: true, 32: true, 33: false, 4000: false} {
		err := quorum.CheckSize("peers", n)
		if (err == nil) != ok {
			t.Errorf("%d members: %v", n, err)
		}
		if want := fmt.Sprintf("peers: want 3 to 32 members, got %d (rule membership_size)", n); !ok && err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}

func TestThresholds(t *testing.T) {
	for _, n := range []int{3, 5, 32} {
		for threshold := -1; threshold <= n+1; threshold++ {
			err := quorum.CheckThreshold("threshold", threshold, n)
			if (err == nil) != (threshold == n/2+1) {
				t.Errorf("threshold %d of %d: %v", threshold, n, err)
			}
		}
	}
	err := quorum.CheckThreshold("threshold", 1, 32)
	if want := "threshold: want 17 for 32 members, got 1 (rule threshold)"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

func TestEpochs(t *testing.T) {
	for epoch, ok := range map[uint64]bool{0: false, 1: true, 1<<63 - 1: true, 1 << 63: false, 1<<64 - 1: false} {
		if err := quorum.CheckEpoch("epoch", epoch); (err == nil) != ok {
			t.Errorf("epoch %d: %v", epoch, err)
		}
	}
}

func TestCheckMembersReportsAllProblemsWithTheirFields(t *testing.T) {
	named := func(part, serial string) wire.Baseboard {
		return wire.Baseboard{PartNumber: part, SerialNumber: serial}
	}
	ok := board(1)
	peers := []wire.Baseboard{ok, named("a b", "1"), ok, named("P", ""), ok, named("P", strings.Repeat("s", 65))}
	for range 28 {
		peers = append(peers, board(len(peers)))
	}
	err := quorum.CheckMembers("trust_quorum_peers", peers)
	var got []string
	for _, e := range quorum.Broken(err) {
		got = append(got, e.Error())
	}
	want := []string{
		"trust_quorum_peers: want 3 to 32 members, got 34 (rule membership_size)",
		"trust_quorum_peers[1].part_number: must match ^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$ (rule name)",
		"trust_quorum_peers[2]: is the same sled as trust_quorum_peers[0] (rule duplicate_member)",
		"trust_quorum_peers[3].serial_number: must match ^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$ (rule name)",
		"trust_quorum_peers[4]: is the same sled as trust_quorum_peers[0] (rule duplicate_member)",
		"trust_quorum_peers[5].serial_number: must match ^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$ (rule name)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if text := want[0] + "; and 5 more"; err.Error() != text {
		t.Errorf("got %q, want %q", err, text)
	}
}

func TestBrokenFindsRulesAtAnyDepth(t *testing.T) {
	if got := quorum.Broken(nil); got != nil {
		t.Errorf("nil breaks %v", got)
	}
	if got := quorum.Broken(errors.New("else")); got != nil {
		t.Errorf("another error breaks %v", got)
	}
	one := fmt.Errorf("wrapped: %w", quorum.CheckEpoch("epoch", 0))
	if got := quorum.Broken(one); len(got) != 1 || got[0].Rule != quorum.RuleEpoch {
		t.Errorf("one rule: got %v", got)
	}
	many := quorum.CheckMembers("m", []wire.Baseboard{board(1), board(1)})
	if rule, ok := errors.AsType[*quorum.RuleError](fmt.Errorf("wrapped: %w", many)); !ok || rule.Rule != quorum.RuleMembershipSize {
		t.Errorf("errors.As finds %v", rule)
	}
}
