package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Numbers of command lines. They are read in one way only: a comma is a decimal sign to
// some and parts thousands to others, so it is asked about and not guessed.

var (
	errDigits   = errors.New("a whole number in digits alone is needed, such as 100000")
	errDecimal  = errors.New("an amount of US dollars such as 2.50 is needed")
	errComma    = errors.New("decimals come after a point, and nothing between thousands: 2.5, 1500")
	errNegative = errors.New("it is at least 0")
)

// whole reads digits alone.
func whole(s string) (int64, error) {
	switch {
	case strings.HasPrefix(s, "-") && digits(s[1:]):
		return 0, errNegative
	case !digits(s):
		return 0, errDigits
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, errors.New("the number is too large")
	}
	return n, nil
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// decimal reads an amount of US dollars, with or without its sign, into the digits
// before the point and those after it.
func decimal(s string) (before, after string, err error) {
	before, after, point := strings.Cut(strings.TrimPrefix(s, "$"), ".")
	all := before + after
	switch {
	case strings.HasPrefix(s, "-") && digits(strings.Replace(strings.TrimPrefix(s[1:], "$"), ".", "", 1)), strings.HasPrefix(s, "$-"):
		return "", "", errNegative
	case strings.Contains(s, ",") && digits(strings.NewReplacer(",", "", ".", "").Replace(strings.TrimPrefix(s, "$"))):
		return "", "", errComma
	case !digits(all), point && after == "":
		return "", "", errDecimal
	}
	return or(strings.TrimLeft(before, "0"), "0"), strings.TrimRight(after, "0"), nil
}

// dollars reads an amount of US dollars such as 2.50, exactly, in billionths.
func dollars(s string) (int64, error) {
	before, after, err := decimal(s)
	switch {
	case errors.Is(err, errDecimal):
		return 0, usage("a limit is an amount of US dollars such as 2.50, not %q", clip(s, 40))
	case err != nil:
	case len(before) > 6:
		err = errors.New("it is more than 999999")
	case len(after) > 9:
		err = errors.New("it has more than nine digits after the point")
	default:
		return strconv.ParseInt(before+after+strings.Repeat("0", 9-len(after)), 10, 64)
	}
	return 0, usage("a limit is an amount of US dollars such as 2.50, not %q: %s", clip(s, 40), err)
}

// priceMost is the highest price in US dollars that the core takes.
const priceMost = 100_000

// priceFlag is a price in US dollars.
type priceFlag float64

func (f *priceFlag) Set(s string) error {
	before, after, err := decimal(s)
	if err != nil {
		return err
	}
	v, err := strconv.ParseFloat(before+"."+or(after, "0"), 64)
	if err != nil || v > priceMost {
		return fmt.Errorf("it is more than %d US dollars per million tokens", priceMost)
	}
	*f = priceFlag(v)
	return nil
}

func (f *priceFlag) String() string { return strconv.FormatFloat(float64(*f), 'f', -1, 64) }
func (*priceFlag) Type() string     { return "dollars" }

// wholeFlag is a number that is at least 0.
type wholeFlag[T int | int64] struct{ v *T }

func (f wholeFlag[T]) Set(s string) error {
	n, err := whole(s)
	if err == nil && int64(T(n)) != n {
		err = errors.New("the number is too large")
	}
	if err == nil {
		*f.v = T(n)
	}
	return err
}

func (f wholeFlag[T]) String() string {
	if f.v == nil {
		return "0"
	}
	return strconv.FormatInt(int64(*f.v), 10)
}

func (wholeFlag[T]) Type() string { return "number" }
