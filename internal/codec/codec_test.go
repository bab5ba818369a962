package codec_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/laterq/later/internal/codec"
	"github.com/laterq/later/store"
)

// all has a value of every type of the contract that is encoded.
type all struct {
	Outgoing   []store.Outgoing
	Sent       []store.SendResult
	Request    store.ClaimRequest
	Claim      store.Claim
	Settle     []store.Settlement
	Settled    []store.SettleResult
	Extend     []store.Extension
	Extended   []store.ExtendResult
	Cancel     store.CancelRequest
	Cancelled  []store.CancelResult
	Errors     []error
	Infos      []*store.Info
	List       store.ListRequest
	Page       store.Page
	Selection  store.Selection
	Due        store.Due
	Bulk       store.Bulk
	Stats      store.Stats
	Retention  store.Retention
	Flow       *store.Flow
	Limits     store.FlowState
	Properties map[string]string
	Forward    store.ForwardRequest
	Forwarded  store.Forwarded
	Reports    []store.Report
	Reported   []store.ReportResult
	Event      store.Reported
	Activity   store.Activity
	Check      store.CheckOptions
	Result     store.CheckResult
}

// fill sets every field to a value that is not zero, each to another one.
func fill(v reflect.Value, n *int) {
	*n++
	switch t := v.Type(); {
	case t == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1_900_000_000+int64(*n), int64(*n)*1000)))
		return
	case t == reflect.TypeFor[error]():
		v.Set(reflect.ValueOf(store.Kinds()[*n%len(store.Kinds())]))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint8:
		v.SetUint(uint64(1 + *n%200))
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Map:
		k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(k, n)
		fill(e, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(k, e)
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; v.Type() != reflect.TypeFor[store.Receipt]() || name != "Claim" {
				fill(v.Field(i), n)
			}
		}
	default:
		panic(fmt.Sprintf("a field has type %v: have fill set it, and see that the codec carries it", v.Type()))
	}
}

func TestEveryFieldOfTheContractIsCarried(t *testing.T) {
	var want, got all
	n := 0
	fill(reflect.ValueOf(&want).Elem(), &n)
	if err := codec.Decode(codec.Append(nil, &want), &got); err != nil {
		t.Fatal(err)
	}
	w, g := reflect.ValueOf(want), reflect.ValueOf(got)
	for i := range w.NumField() {
		if !reflect.DeepEqual(w.Field(i).Interface(), g.Field(i).Interface()) {
			t.Errorf("%s: got %+v, want %+v", w.Type().Field(i).Name, g.Field(i), w.Field(i))
		}
	}
}

func TestZeroNilAndEmptyDiffer(t *testing.T) {
	type values struct {
		Nil, Empty []byte
		None, No   []string
		Map, Maps  map[string]string
		Times      []time.Time
		Pointers   []*store.Info
		Negative   int64
	}
	want := values{Empty: []byte{}, No: []string{}, Maps: map[string]string{}, Times: make([]time.Time, 1),
		Pointers: []*store.Info{nil, {}}, Negative: -1 << 63}
	var got values
	if err := codec.Decode(codec.Append(nil, &want), &got); err != nil {
		t.Fatal(err)
	}
	if !got.Times[0].IsZero() {
		t.Errorf("zero time became %v", got.Times[0])
	}
	got.Times[0] = time.Time{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, want %#v", got, want)
	}
}

func TestErrorsKeepTheirTextAndAllTheirKinds(t *testing.T) {
	for _, err := range []error{
		store.ErrLeaseLost, store.Invalid("id %q is empty", "x"), store.ErrCancelled,
		fmt.Errorf("%w: %w", store.ErrUnavailable, store.ErrFull), errors.New("of no kind"),
		errors.Join(store.ErrClosed), store.Field("messages[3]", store.Field("timeout", store.Invalid("is too long"))),
		store.Field("id", store.ErrInvalid),
	} {
		var got error
		if err := codec.Decode(codec.Append(nil, &err), &got); err != nil {
			t.Fatal(err)
		}
		if got.Error() != err.Error() || store.CodeOf(got) != store.CodeOf(err) || store.FieldOf(got) != store.FieldOf(err) {
			t.Errorf("%v (%s) became %v (%s, %s)", err, store.CodeOf(err), got, store.CodeOf(got), store.FieldOf(got))
		}
		for _, kind := range store.Kinds() {
			if errors.Is(got, kind) != errors.Is(err, kind) {
				t.Errorf("%v is %v: %v", err, kind, errors.Is(got, kind))
			}
		}
	}
	var none error
	if err := codec.Decode(codec.Append(nil, &none), &none); err != nil || none != nil {
		t.Errorf("no error became %v, %v", none, err)
	}
}

func TestDecodeReusesASlice(t *testing.T) {
	sent := store.Claim{Messages: []store.Claimed{{Message: store.Message{ID: "a"}}}}
	buffer := []store.Claimed{
		{Message: store.Message{Payload: []byte("old")}, Receipt: store.Receipt{Claim: 1}, Attempt: 7},
	}
	got := store.Claim{Messages: buffer[:0]}
	if err := codec.Decode(codec.Append(nil, &sent), &got); err != nil {
		t.Fatal(err)
	}
	if &got.Messages[0] != &buffer[0] {
		t.Error("the slice was not reused")
	}
	if !reflect.DeepEqual(got, sent) {
		t.Errorf("got %+v, want %+v", got, sent)
	}
}

func TestMalformedTextsAreRefused(t *testing.T) {
	n := 0
	var v all
	fill(reflect.ValueOf(&v).Elem(), &n)
	whole := codec.Append(nil, &v)
	var into all
	for i := range whole {
		if err := codec.Decode(whole[:i], &into); !errors.Is(err, codec.ErrMalformed) {
			t.Fatalf("the first %d bytes: %v", i, err)
		}
	}
	if err := codec.Decode(append(whole, 0), &into); !errors.Is(err, codec.ErrMalformed) {
		t.Errorf("a byte more: %v", err)
	}
	var flag struct{ On bool }
	if err := codec.Decode([]byte{2}, &flag); !errors.Is(err, codec.ErrMalformed) {
		t.Errorf("a field of a later version: %v", err)
	}
	var infos []store.Info
	bomb := append([]byte{0x81, 0x80, 0x80, 1}, make([]byte, 2<<20)...)
	if err := codec.Decode(bomb, &infos); err == nil || infos != nil {
		t.Errorf("2 MiB for a million messages: %v, %d", err, len(infos))
	}
}

func FuzzDecode(f *testing.F) {
	n := 0
	var v all
	fill(reflect.ValueOf(&v).Elem(), &n)
	f.Add(codec.Append(nil, &v))
	f.Fuzz(func(t *testing.T, b []byte) {
		var first, second all
		if codec.Decode(b, &first) != nil {
			return
		}
		if err := codec.Decode(codec.Append(nil, &first), &second); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkSend(b *testing.B) {
	msgs := make([]store.Outgoing, 500)
	for i := range msgs {
		msgs[i] = store.Outgoing{Message: store.Message{ID: store.NewID(), Payload: make([]byte, 100)},
			Due: store.Due{Delay: time.Minute}}
	}
	var buffer []byte
	b.ReportAllocs()
	for b.Loop() {
		buffer = codec.Append(buffer[:0], &msgs)
		var got []store.Outgoing
		if err := codec.Decode(buffer, &got); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(msgs)), "ns/message")
	b.ReportMetric(float64(len(buffer))/float64(len(msgs)), "bytes/message")
}
