package quorum

import (
	"errors"
	"fmt"

	"muster/wire"
)

// How many sleds a quorum may have. Fewer than three cannot outvote anyone, and
// thirty-two is what one rack holds.
const (
	MinMembers = 3
	MaxMembers = 32
)

// MaxEpoch is the last legal epoch, 2^63 - 1: readers that hold an epoch in a
// signed integer stay right. The first legal epoch is 1.
const MaxEpoch = 1<<63 - 1

// A Rule names one of the conditions a configuration or a request must meet.
type Rule string

// The rules. This list is closed.
const (
	RuleMembershipSize       Rule = "membership_size"
	RuleDuplicateMember      Rule = "duplicate_member"
	RuleName                 Rule = "name"
	RuleThreshold            Rule = "threshold"
	RuleEpoch                Rule = "epoch"
	RuleRackID               Rule = "rack_id"
	RuleCoordinatorIsMember  Rule = "coordinator_is_member"
	RuleMemberOrder          Rule = "member_order"
	RuleEncryptedRackSecrets Rule = "encrypted_rack_secrets"
	RulePriorEpoch           Rule = "prior_epoch"
)

// A RuleError is one broken rule. Its message holds nothing of the request but
// numbers and positions.
type RuleError struct {
	Rule Rule
	// Field is the JSON path of what is wrong, such as "members[3][0].part_number".
	Field string
	// Problem says what is wrong, for an operator.
	Problem string
}

// Error prints the field, the problem and the rule.
func (e *RuleError) Error() string {
	return fmt.Sprintf("%s: %s (rule %s)", e.Field, e.Problem, e.Rule)
}

// Broken lists the rules that err reports as broken, in the order found. It is
// empty for nil and for errors of another kind.
func Broken(err error) []*RuleError {
	var list ruleErrors
	var one *RuleError
	switch {
	case errors.As(err, &list):
		return list
	case errors.As(err, &one):
		return []*RuleError{one}
	}
	return nil
}

// ruleErrors is every broken rule of one document.
type ruleErrors []*RuleError

func (l ruleErrors) Error() string {
	if len(l) == 1 {
		return l[0].Error()
	}
	return fmt.Sprintf("%v; and %d more", l[0], len(l)-1)
}

func (l ruleErrors) Unwrap() []error {
	all := make([]error, len(l))
	for i, e := range l {
		all[i] = e
	}
	return all
}

func (l *ruleErrors) add(rule Rule, field, format string, args ...any) {
	*l = append(*l, &RuleError{Rule: rule, Field: field, Problem: fmt.Sprintf(format, args...)})
}

func (l *ruleErrors) addAll(err error) {
	*l = append(*l, Broken(err)...)
}

// err is nil for an empty list.
func (l ruleErrors) err() error {
	if len(l) == 0 {
		return nil
	}
	return l
}

// Threshold is how many of n members it takes to recover the rack secret: a
// majority, n/2 + 1.
func Threshold(n int) int { return n/2 + 1 }

// Tolerance is how many of n members beyond the threshold must have committed
// before an epoch may be superseded: so many may then be lost for good, and the
// epoch's secret still be recovered.
func Tolerance(n int) int {
	switch {
	case n <= 4:
		return 0
	case n <= 8:
		return 1
	case n <= 15:
		return 2
	case n <= 23:
		return 3
	}
	return 4
}

// CheckSize reports RuleMembershipSize unless n is 3 to 32.
func CheckSize(field string, n int) error {
	if n < MinMembers || n > MaxMembers {
		return &RuleError{RuleMembershipSize, field,
			fmt.Sprintf("want %d to %d members, got %d", MinMembers, MaxMembers, n)}
	}
	return nil
}

// CheckNames reports every baseboard with a bad name (RuleName) and every one
// listed a second time (RuleDuplicateMember). Fields are field[i].part_number
// and field[i]. Size and order are not its matter.
func CheckNames(field string, boards []wire.Baseboard) error {
	return checkNames(boards, func(i int) string { return fmt.Sprintf("%s[%d]", field, i) })
}

func checkNames(boards []wire.Baseboard, path func(int) string) error {
	var broken ruleErrors
	first := make(map[wire.Baseboard]int, len(boards))
	for i, b := range boards {
		if name, bad := errors.AsType[*wire.NameError](b.Check()); bad {
			broken.add(RuleName, path(i)+"."+name.Field, "must match %s", wire.NamePattern)
			continue
		}
		if j, seen := first[b]; seen {
			broken.add(RuleDuplicateMember, path(i), "is the same sled as %s", path(j))
			continue
		}
		first[b] = i
	}
	return broken.err()
}

// CheckMembers applies CheckSize and CheckNames.
func CheckMembers(field string, boards []wire.Baseboard) error {
	var broken ruleErrors
	broken.addAll(CheckSize(field, len(boards)))
	broken.addAll(CheckNames(field, boards))
	return broken.err()
}

// CheckThreshold reports RuleThreshold unless threshold is Threshold(n).
func CheckThreshold(field string, threshold, n int) error {
	if want := Threshold(n); threshold != want {
		return &RuleError{RuleThreshold, field,
			fmt.Sprintf("want %d for %d members, got %d", want, n, threshold)}
	}
	return nil
}

// CheckEpoch reports RuleEpoch unless epoch is 1 to 2^63 - 1.
func CheckEpoch(field string, epoch uint64) error {
	if epoch < 1 || epoch > MaxEpoch {
		return &RuleError{RuleEpoch, field, fmt.Sprintf("want 1 to 2^63-1, got %d", epoch)}
	}
	return nil
}

// CheckRackID reports RuleRackID unless id is a name. Rack ids are UUIDs; any
// name is taken, since nothing here depends on it.
func CheckRackID(field, id string) error {
	if !wire.ValidName(id) {
		return &RuleError{RuleRackID, field, "must match " + wire.NamePattern}
	}
	return nil
}
