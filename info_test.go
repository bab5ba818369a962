package later

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

func TestInfoIsTheSameFromEveryCall(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		var infos log[*Info]
		w := NewWorker(c, WorkerConfig{OnDead: func(_ context.Context, info *Info) { infos.add(info) }})
		w.Handle("q", func(context.Context, *Message) error { return Bury(errors.New("bad")) })
		start(t, w)
		id := mustSend(t, q, "payload")
		synctest.Wait()
		info, err := q.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		infos.add(info)
		page, err := q.List(t.Context(), ListOptions{State: StateDead})
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range page.Messages {
			infos.add(info)
		}
		for info, err := range q.All(t.Context(), ListOptions{State: StateDead}) {
			if err != nil {
				t.Fatal(err)
			}
			infos.add(info)
		}
		all := infos.list()
		if len(all) != 4 {
			t.Fatalf("%d infos; want one each of OnDead, Get, List and All", len(all))
		}
		sent, _ := store.IDTime(id)
		for i, info := range all {
			if info.ID != id || info.Queue != "q" || string(info.Payload) != "payload" || info.State != StateDead ||
				info.MaxAttempts != store.DefaultMaxAttempts || !info.SentAt.Equal(sent) {
				t.Errorf("info %d: %+v", i, info)
			}
		}
	})
}

func TestInfoKeepsTheSendersValues(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, sent := c.Queue("q"), time.Now()
		mustSend(t, q, "", WithID("id"), MaxAttempts(3))
		time.Sleep(time.Minute)
		info, err := q.Get(t.Context(), "id")
		if err != nil || info.MaxAttempts != 3 || !info.SentAt.Equal(sent) {
			t.Errorf("Get returned %+v, %v", info, err)
		}
	})
}

// TestInfoHasEveryFieldOfTheStore fails when package store has a field that Info lacks or that newInfo leaves out.
func TestInfoHasEveryFieldOfTheStore(t *testing.T) {
	var from store.Info
	set := func(v reflect.Value) {
		for i := range v.NumField() {
			switch f := v.Field(i).Addr().Interface().(type) {
			case *store.Message:
			case *[]byte:
				*f = []byte("bytes")
			case *[]store.Failure:
				*f = []store.Failure{{Time: time.UnixMilli(1), Attempt: 2, Duration: time.Second, Worker: "w", Error: "no"}}
			case *map[string]string:
				*f = map[string]string{"key": "value"}
			case *bool:
				*f = true
			case *time.Time:
				*f = time.UnixMilli(int64(i + 1))
			default:
				switch f := v.Field(i); f.Kind() {
				case reflect.String:
					f.SetString(v.Type().Field(i).Name)
				default:
					f.SetInt(int64(i + 1))
				}
			}
		}
	}
	set(reflect.ValueOf(&from).Elem())
	set(reflect.ValueOf(&from.Message).Elem())
	want := string(jsontext.Append(nil, wire.NewInfo("q", &from)))
	if got, err := json.Marshal(InfoOf("q", from)); err != nil || string(got) != want {
		t.Errorf("JSON %s, %v", got, err)
	}
	info := reflect.ValueOf(*InfoOf("q", from))
	for _, field := range reflect.VisibleFields(reflect.TypeFor[store.Info]()) {
		if field.Anonymous {
			continue
		}
		want := reflect.ValueOf(from).FieldByIndex(field.Index).Interface()
		if got := info.FieldByName(field.Name); !got.IsValid() || !reflect.DeepEqual(got.Interface(), want) {
			t.Errorf("%s is %v, want %v", field.Name, got, want)
		}
	}
	if n := reflect.TypeFor[*Info]().NumMethod(); n != 2 {
		t.Errorf("Info has %d methods, want MarshalJSON and SizeAsJSON only", n)
	}
}
